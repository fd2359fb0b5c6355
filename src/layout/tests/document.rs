//! Every checked table of docs/format.md says what the code does, and nothing else.

use std::collections::HashSet;
use std::fmt::Debug;

use super::super::encode::{
    COUNTER_MODES, KIND_COUNTER, KIND_GAUGE, LIFETIMES, ROLLUPS, SCOPES, VALUE_TYPES,
};
use super::super::tables::{Field, RecordEntry, SnapshotEntry, Text};
use super::doc::{TEXT, rows, table, value};
use super::sample;
use super::*;
use crate::lease;
use crate::protocol::{gauge, no_hook, snapshot};
use crate::schema::{MAX_FIELDS, MAX_RECORDS};
use crate::server::{STATE_CLAIMED, STATE_RELEASED};
use crate::sync::AtomicU64;

/// Offset and size of each name, where no variable is needed.
fn plain(table: &str) -> Vec<(String, usize, usize)> {
    let number = |text: &str| value(text, &[]) as usize;
    rows(table).into_iter().map(|r| (r.name, number(&r.offset), number(&r.size))).collect()
}

/// Offset of each name under these variables; every size is a word's.
fn words(table: &str, variables: &[(&str, u64)]) -> Vec<(String, u64)> {
    let rows = rows(table).into_iter();
    rows.map(|row| {
        assert_eq!(row.size, "8", "{table}: {}", row.name);
        (row.name, value(&row.offset, variables))
    })
    .collect()
}

fn fields(fields: &[Field]) -> Vec<(String, usize, usize)> {
    // The words of blocks are constants in the code, so in capitals there.
    fields.iter().map(|(name, at, size)| (name.to_ascii_lowercase(), *at, *size)).collect()
}

#[test]
fn tables_of_fields_are_those_of_the_code() {
    for (name, code) in [
        ("Header", Header::FIELDS),
        ("Text", Text::FIELDS),
        ("RecordEntry", RecordEntry::FIELDS),
        ("SnapshotEntry", SnapshotEntry::FIELDS),
        ("RegionBlock", RegionBlock::FIELDS),
        ("PrimaryBlock", PrimaryBlock::FIELDS),
        ("OwnerBlock", OwnerBlock::FIELDS),
    ] {
        assert_eq!(plain(name), fields(code), "table {name}");
    }
}

#[test]
fn fields_of_entries_leave_no_gap() {
    for (name, size) in [("Header", 256), ("RecordEntry", 96), ("SnapshotEntry", 64)] {
        let end = plain(name).iter().fold(0, |end, (field, at, size)| {
            assert_eq!(*at, end, "{name}: {field}");
            at + size
        });
        assert_eq!(end, size, "{name}");
    }
}

#[test]
fn codes_are_those_of_the_code() {
    fn check<T: Debug>(name: &str, codes: &[(u8, T)]) {
        let documented: Vec<_> =
            table(name).into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
        let code = codes.iter().map(|(code, value)| (code.to_string(), format!("{value:?}")));
        assert_eq!(documented, code.collect::<Vec<_>>(), "table {name}");
    }
    check("mode", &COUNTER_MODES);
    check("value type", &VALUE_TYPES);
    check("rollup", &ROLLUPS);
    check("scope", &SCOPES);
    check("lifetime", &LIFETIMES);
    let pairs = |name: &str| -> Vec<_> {
        table(name).into_iter().map(|row| (row[0].parse().unwrap(), row[1].clone())).collect()
    };
    let kinds = [(KIND_COUNTER, "Counter"), (KIND_GAUGE, "Gauge")];
    assert_eq!(pairs("kind"), kinds.map(|(code, name)| (u64::from(code), name.to_owned())));
    let states = [(STATE_CLAIMED, "claimed"), (STATE_RELEASED, "released")];
    assert_eq!(pairs("state"), states.map(|(code, name)| (code, name.to_owned())));
}

#[test]
fn limits_are_those_of_the_code() {
    let code = [
        ("VERSION", VERSION as usize),
        ("LINE", LINE),
        ("PAGE", PAGE),
        ("MAX_SLOTS", MAX_SLOTS as usize),
        ("MAX_RECORDS", MAX_RECORDS),
        ("MAX_FIELDS", MAX_FIELDS),
        ("MAX_LABELS", MAX_LABELS),
        ("MAX_NAME", MAX_NAME),
        ("MAX_LABEL_VALUE", MAX_LABEL_VALUE),
        ("MAX_HELP", MAX_HELP),
        ("MAX_STRINGS", MAX_STRINGS),
    ];
    let documented: Vec<_> =
        table("limits").into_iter().map(|r| (r[0].clone(), r[1].parse().unwrap())).collect();
    assert_eq!(documented, code.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn lease_offsets_are_those_of_the_code() {
    for i in [0, 1, u64::from(MAX_SLOTS) - 1] {
        let documented: Vec<_> = rows("leases")
            .into_iter()
            .map(|row| (row.name, value(&row.offset, &[("i", i)]) as i64, row.size))
            .collect();
        let one = || "1".to_owned();
        let code = [
            ("attach".to_owned(), lease::ATTACH, one()),
            ("primary".to_owned(), lease::PRIMARY, one()),
            ("boot".to_owned(), lease::BOOT, one()),
            ("slot".to_owned(), lease::SLOTS + i as i64, one()),
        ];
        assert_eq!(documented, code);
    }
}

/// Here the code has no list of names: each word is found by what the code writes there.
#[test]
fn words_of_snapshots_and_gauges_are_where_the_code_writes_them() {
    let cells = [const { AtomicU64::new(0) }; snapshot::HEAD_WORDS + 2];
    let stamp = snapshot::Stamp { sequence: 0, reset: 11, time: 12, present: 0b11 };
    snapshot::publish(&cells, stamp, &[20, 21], no_hook);
    let written = cells.map(AtomicU64::into_inner);
    let mut seen = HashSet::new();
    for n in [0, 1] {
        for (name, at) in words("Snapshot", &[("n", n)]) {
            let expected = match name.as_str() {
                "sequence" => 2,
                "reset" => 11,
                "time" => 12,
                "present" => 0b11,
                "value" => 20 + n,
                other => panic!("unknown word {other}"),
            };
            assert_eq!(written[at as usize / 8], expected, "{name}");
            seen.insert(at);
        }
    }
    assert_eq!(seen.len(), written.len(), "every word has a row");

    let [value, mark, reset] = [0, 0, 7].map(AtomicU64::new);
    gauge::set(&value, &mark, &reset, 5);
    assert_eq!((value.into_inner(), mark.into_inner()), (5, 8), "mark is reset_number + 1");
}

#[test]
fn words_of_accounts_and_cells_are_where_the_layout_puts_them() {
    let layout = Layout::of(&sample::schema(), 2, 2);
    let d = layout.drained.len as u64;
    let (mut documented, mut gauges) = (HashSet::from([0]), HashSet::new());
    for (i, place) in layout.places.iter().enumerate() {
        let (cell, account) =
            (layout.cell_offset(RecordId(i)), layout.account_offset(RecordId(i)) as u64);
        let at = |table: &str, base: Span, name: &str, variables: &[(&str, u64)]| {
            let rows = words(table, variables);
            let row = rows.iter().find(|(n, _)| n == name).expect("a row of this name");
            (8 * base.start as u64 + row.1, row.1)
        };
        match *place {
            Place::Drained(n) => {
                let variables = [("n", n as u64), ("m", 0), ("d", d)];
                let (ledger, row) = at("Accounts", layout.accounts, "ledger", &variables);
                let (intent, next) = at("Accounts", layout.accounts, "intent", &variables);
                assert_eq!((account, account + 8), (ledger, intent));
                documented.extend([row, next]);
            }
            Place::Single(m) => {
                let variables = [("n", 0), ("m", m as u64), ("d", d)];
                let (watermark, row) = at("Accounts", layout.accounts, "watermark", &variables);
                assert_eq!(account, watermark);
                documented.insert(row);
            }
            Place::Gauge(n) => {
                let (value, row) = at("Gauge", layout.gauges, "value", &[("n", n as u64)]);
                let (mark, next) = at("Gauge", layout.gauges, "mark", &[("n", n as u64)]);
                assert_eq!((cell as u64, account), (value, mark));
                gauges.extend([row, next]);
            }
            Place::Field { snapshot, field } => {
                let span = layout.snapshots[snapshot];
                let (value, _) = at("Snapshot", span, "value", &[("n", field as u64)]);
                let (sequence, _) = at("Snapshot", span, "sequence", &[("n", 0)]);
                assert_eq!((cell as u64, account), (value, sequence));
            }
        }
    }
    let sequence = words("Accounts", &[("n", 0), ("m", 0), ("d", d)]).remove(0);
    assert_eq!(sequence, ("sequence".to_owned(), 0));
    assert_eq!(documented.len(), layout.accounts.len, "every account has a row");
    assert_eq!(gauges.len(), layout.gauges.len, "every gauge's word has a row");
}

#[test]
fn labels_are_written_as_documented() {
    let schema = schema::Schema::builder("t")
        .counter(schema::CounterDef::new("a").label("key", "Wert").label("b", "x"))
        .build()
        .unwrap();
    let head = Layout::of(&schema, 1, 1).encode(BIRTH);
    let mut expected = Vec::new();
    for (key, label) in [("key", "Wert"), ("b", "x")] {
        let variables = [("k", key.len() as u64), ("v", label.len() as u64)];
        let mut group = vec![0; 4 + key.len() + label.len()];
        for row in rows("Label") {
            let at = value(&row.offset, &variables) as usize;
            let bytes = match row.name.as_str() {
                "key_length" => (key.len() as u16).to_ne_bytes().to_vec(),
                "key" => key.as_bytes().to_vec(),
                "value_length" => (label.len() as u16).to_ne_bytes().to_vec(),
                "value" => label.as_bytes().to_vec(),
                other => panic!("unknown field {other}"),
            };
            assert_eq!(value(&row.size, &variables) as usize, bytes.len(), "{}", row.name);
            group[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        expected.extend(group);
    }
    assert!(head.windows(expected.len()).any(|window| window == expected));
}

#[test]
fn no_table_is_left_unchecked() {
    let checked = [
        "Header",
        "Text",
        "Label",
        "RecordEntry",
        "kind",
        "mode",
        "value type",
        "rollup",
        "scope",
        "lifetime",
        "SnapshotEntry",
        "RegionBlock",
        "PrimaryBlock",
        "OwnerBlock",
        "state",
        "Gauge",
        "Snapshot",
        "Accounts",
        "limits",
        "leases",
    ];
    let marks = TEXT.split("<!-- checked: ").skip(1);
    let marked: Vec<_> = marks.filter_map(|rest| Some(rest.split_once(" -->")?.0)).collect();
    assert_eq!(marked, checked);
    let heads = TEXT.lines().filter(|line| line.starts_with("|---")).count();
    assert_eq!(heads, checked.len(), "every table is marked as checked");
}

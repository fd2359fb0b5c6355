//! For any schema: the parts lie apart and in order, and what is written is read again.

use std::collections::HashSet;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::schema::{
    CounterDef, GaugeDef, Lifetime, MAX_FIELDS, MAX_RECORDS, Rollup, SchemaBuilder, SnapshotDef,
};

/// One call of the builder, without its name.
#[derive(Clone, Debug)]
enum Item {
    Counter { single: bool, values: Vec<String>, help: String },
    Gauge(GaugeShape),
    Snapshot { shared: bool, lifetime: Lifetime, stale_after: u64, gauges: Vec<GaugeShape> },
}

#[derive(Clone, Debug)]
struct GaugeShape {
    value_type: u8,
    rollup: Rollup,
    lifetime: Lifetime,
    label: Option<String>,
    unit: bool,
}

fn text(most: usize) -> impl Strategy<Value = String> {
    vec(any::<char>().prop_filter("no control characters", |c| !c.is_control()), 0..most)
        .prop_map(String::from_iter)
}

fn lifetime() -> impl Strategy<Value = Lifetime> {
    prop_oneof![Just(Lifetime::Owner), Just(Lifetime::Region)]
}

fn gauge() -> impl Strategy<Value = GaugeShape> {
    let rollup =
        prop_oneof![Just(Rollup::Sum), Just(Rollup::Mean), Just(Rollup::Max), Just(Rollup::Min)];
    let label = proptest::option::of(text(20));
    (0..3u8, rollup, lifetime(), label, any::<bool>()).prop_map(
        |(value_type, rollup, lifetime, label, unit)| GaugeShape {
            value_type,
            rollup,
            lifetime,
            label,
            unit,
        },
    )
}

fn item() -> impl Strategy<Value = Item> {
    let values = vec(text(20), 0..4).prop_map(|values| {
        let mut seen = HashSet::new();
        values.into_iter().filter(|v| seen.insert(v.clone())).collect()
    });
    prop_oneof![
        (any::<bool>(), values, text(60)).prop_map(|(single, values, help)| Item::Counter {
            single,
            values,
            help
        }),
        gauge().prop_map(Item::Gauge),
        (any::<bool>(), lifetime(), any::<u64>(), vec(gauge(), 1..9)).prop_map(
            |(shared, lifetime, stale_after, gauges)| Item::Snapshot {
                shared,
                lifetime,
                stale_after,
                gauges
            }
        ),
    ]
}

fn gauge_def(name: String, shape: GaugeShape) -> GaugeDef {
    let def = match shape.value_type {
        0 => GaugeDef::u64(name),
        1 => GaugeDef::i64(name),
        _ => GaugeDef::f64(name),
    };
    let def = def.rollup(shape.rollup).lifetime(shape.lifetime);
    let def = if shape.unit { def.unit("bytes") } else { def };
    shape.label.into_iter().fold(def, |def, label| def.label("own", format!("x{label}")))
}

fn declare(builder: SchemaBuilder, (i, item): (usize, Item)) -> SchemaBuilder {
    match item {
        Item::Counter { single, values, help } => {
            let mut def = CounterDef::new(format!("c{i}")).help(help);
            if single {
                def = def.single_writer();
            }
            builder.counter(if values.is_empty() {
                def
            } else {
                def.family("value", values.iter().map(|v| format!("x{v}")))
            })
        }
        Item::Gauge(shape) => builder.gauge(gauge_def(format!("g{i}"), shape)),
        Item::Snapshot { shared, lifetime, stale_after, gauges } => {
            let def = SnapshotDef::new(format!("s{i}")).label("snapshot", i.to_string());
            let def = if shared { def.shared() } else { def };
            let def = def.lifetime(lifetime).stale_after(Duration::from_nanos(stale_after));
            builder.snapshot(
                gauges
                    .into_iter()
                    .enumerate()
                    .fold(def, |def, (k, shape)| def.gauge(gauge_def(format!("g{i}_{k}"), shape))),
            )
        }
    }
}

fn any_schema() -> impl Strategy<Value = Schema> {
    vec(item(), 1..12).prop_map(|items| {
        items
            .into_iter()
            .enumerate()
            .fold(Schema::builder("p"), declare)
            .build()
            .expect("a valid schema")
    })
}

/// The parts of a slot after its owner block: their names, first word and length.
fn parts(layout: &Layout) -> [(&'static str, Span); 5] {
    let publications = Span {
        start: layout.publications().0 / 8,
        len: layout.snapshots.iter().map(|span| span.len).sum(),
    };
    [
        ("drained", layout.drained),
        ("single", layout.single),
        ("gauges", layout.gauges),
        ("publications", publications),
        ("accounts", layout.accounts),
    ]
}

fn check_arithmetic(layout: &Layout) {
    let line = LINE / 8;
    let mut end = tables::BLOCK_WORDS;
    for (name, span) in parts(layout) {
        assert!(span.start >= end, "{name} overlaps what is before it");
        assert!(span.start < end + line, "{name} leaves a line unused");
        assert_eq!(span.start % line, 0, "{name} begins on a line");
        end = span.start + span.len;
    }
    assert!(
        end <= layout.stride && layout.stride < end + line && layout.stride.is_multiple_of(line)
    );
    assert_eq!(layout.slots_offset % PAGE, 0);
    assert_eq!(
        layout.file_size,
        layout.slots_offset + layout.slot_count as usize * layout.stride * 8
    );
    assert!(layout.region_block.is_multiple_of(LINE));
    assert!(layout.primary_block.is_multiple_of(LINE));
}

/// Every word has one meaning, and lies in the part of its kind.
fn check_words(layout: &Layout) {
    let [drained, single, gauges, publications, accounts] = parts(layout).map(|(_, span)| span);
    let inside = |at: usize, span: Span| {
        assert_eq!(at % 8, 0);
        assert!((span.start..span.start + span.len).contains(&(at / 8)));
    };
    let mut taken = HashSet::new();
    for i in 0..layout.schema.records().len() {
        let (cell, account) = (layout.cell_offset(RecordId(i)), layout.account_offset(RecordId(i)));
        let (cells, beside) = match layout.places[i] {
            Place::Drained(_) => (drained, accounts),
            Place::Single(_) => (single, accounts),
            Place::Gauge(_) => (gauges, gauges),
            Place::Field { .. } => (publications, publications),
        };
        inside(cell, cells);
        inside(account, beside);
        assert!(taken.insert(cell), "a cell of its own");
        match layout.places[i] {
            Place::Drained(_) => {
                inside(account + 8, accounts);
                assert!(taken.insert(account) && taken.insert(account + 8));
            }
            Place::Single(_) | Place::Gauge(_) => assert!(taken.insert(account)),
            Place::Field { .. } => assert!(!taken.contains(&account)),
        }
    }
    for (span, shape) in layout.snapshots.iter().zip(layout.schema.snapshots()) {
        assert_eq!(span.len, crate::protocol::snapshot::HEAD_WORDS + shape.records.len());
        for word in span.start..span.start + crate::protocol::snapshot::HEAD_WORDS {
            assert!(taken.insert(8 * word), "snapshots lie apart");
        }
    }
    let all = drained.len + single.len + gauges.len + publications.len + accounts.len;
    // All but the accounts' sequence.
    assert_eq!(taken.len(), all - 1, "no word is unused");
}

fn check_round_trip(layout: &Layout) {
    let head = layout.encode(BIRTH);
    assert_eq!(head.len(), layout.slots_offset);
    let found = read(&head, layout.file_size).unwrap_or_else(|fault| panic!("{fault:?}"));
    assert_eq!(found.schema, layout.schema);
    assert_eq!(layout.schema.difference(&found.schema), None);
    // Everything else, by the one way to see every field.
    assert_eq!(format!("{found:?}"), format!("{layout:?}"));
}

proptest! {
    #[test]
    fn any_layout_is_sound(schema in any_schema(), servers in 1..200u32, slots in 1..200u32) {
        let layout = Layout::of(&schema, servers, slots);
        check_arithmetic(&layout);
        check_words(&layout);
        check_round_trip(&layout);
    }
}

#[test]
fn the_largest_layouts_are_sound() {
    let most = MAX_RECORDS;
    let counters = (0..most).fold(Schema::builder("p"), |b, i| b.counter(format!("c{i}").as_str()));
    let snapshots = (0..most / MAX_FIELDS).fold(Schema::builder("p"), |builder, i| {
        let def = SnapshotDef::new(format!("s{i}"));
        let gauge = |k| GaugeDef::u64(format!("g{i}_{k}"));
        builder.snapshot((0..MAX_FIELDS).fold(def, |def, k| def.gauge(gauge(k))))
    });
    for builder in [counters, snapshots] {
        let layout = Layout::of(&builder.build().unwrap(), MAX_SLOTS, MAX_SLOTS);
        check_arithmetic(&layout);
        check_words(&layout);
        check_round_trip(&layout);
    }
}

/// More strings than 16 MiB, as the rules allow them.
#[test]
fn the_longest_strings_are_read_again() {
    let long = "x".repeat(schema::names::MAX_LABEL_VALUE);
    let schema = (0..MAX_RECORDS).fold(Schema::builder("p"), |builder, i| {
        let def = CounterDef::new(format!("c{i}"));
        builder.counter((0..14).fold(def, |def, k| {
            // Each its own: a string that stands twice is stored once.
            let long = format!("{}{i}", &long[..long.len() - i.to_string().len()]);
            def.label(format!("{}{k}", "k".repeat(60)), long)
        }))
    });
    let layout = Layout::of(&schema.build().unwrap(), 1, 1);
    assert!(layout.slots_offset > 16 << 20);
    let head = layout.encode(BIRTH);
    assert_eq!(read(&head, layout.file_size).unwrap().schema, layout.schema);
}

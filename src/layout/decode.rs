//! Reading a file's head from a private copy. Nothing in it is believed: every offset and length
//! is checked against the file's size before it is used, and every part against the others.

use std::collections::HashSet;

use bytemuck::{AnyBitPattern, pod_read_unaligned};

use super::encode::{
    COUNTER_MODES, KIND_COUNTER, KIND_GAUGE, LIFETIMES, NO_SNAPSHOT, ROLLUPS, SCOPES, VALUE_TYPES,
};
use super::tables::{BLOCK_WORDS, Header, REGION_BLOCK_WORDS, RecordEntry, SnapshotEntry, Text};
use super::{
    BYTE_ORDER_MARK, LINE, Layout, MAGIC, MAX_LABELS_SIZE, MAX_SLOTS, MAX_STRINGS, PAGE, Place,
    Span, VERSION,
};
use crate::protocol::snapshot::HEAD_WORDS;
use crate::schema::names::{MAX_HELP, MAX_LABELS, MAX_NAME};
use crate::schema::{
    CounterMode, Kind, MAX_FIELDS, MAX_RECORDS, Record, RecordId, Schema, SnapshotShape,
};

/// What is wrong with a head: a field of `docs/format.md`, what was expected, what was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) field: String,
    pub(crate) expected: String,
    pub(crate) found: String,
}

type Checked<T> = Result<T, Fault>;

fn check(ok: bool, field: &str, expected: impl ToString, found: impl ToString) -> Checked<()> {
    if ok {
        return Ok(());
    }
    Err(Fault { field: field.into(), expected: expected.to_string(), found: found.to_string() })
}

fn equal<T: PartialEq + ToString>(field: &str, expected: T, found: T) -> Checked<()> {
    check(expected == found, field, expected.to_string(), found.to_string())
}

/// Reads the header out of the file's first bytes. Magic and version come first, so that a file of
/// another version is named as such and not as damaged.
pub(crate) fn read_header(start: &[u8], file_size: u64) -> Checked<Header> {
    let enough = start.len() >= size_of::<Header>();
    check(enough, "file_size", "at least 256 bytes", format!("{} bytes", start.len()))?;
    let header: Header = pod_read_unaligned(&start[..size_of::<Header>()]);
    let printable = |bytes: [u8; 8]| format!("\"{}\"", bytes.escape_ascii());
    check(header.magic == MAGIC, "magic", printable(MAGIC), printable(header.magic))?;
    // The mark lies at the same place in every version, so it goes before the version, which a
    // file of the other byte order would show as a huge number.
    check(
        header.byte_order == BYTE_ORDER_MARK,
        "byte_order",
        format!("{BYTE_ORDER_MARK:#018x}"),
        format!("{:#018x}", header.byte_order),
    )?;
    equal("version", VERSION, header.version)?;
    let checksum = header.expected_checksum();
    check(
        header.checksum == checksum,
        "checksum",
        format!("{checksum:#010x}"),
        format!("{:#010x}", header.checksum),
    )?;
    equal("header_size", size_of::<Header>() as u32, header.header_size)?;
    equal("file_size", header.file_size, file_size)?;
    check_head(&header)?;
    check_slot(&header)?;
    Ok(header)
}

/// The header of a head that this process has just encoded.
pub(crate) fn own_header(head: &[u8]) -> Header {
    pod_read_unaligned(&head[..size_of::<Header>()])
}

/// The parts before the slots follow each other without overlap, within sane limits.
fn check_head(header: &Header) -> Checked<()> {
    equal("record_size", size_of::<RecordEntry>() as u32, header.record_size)?;
    equal("snapshot_size", size_of::<SnapshotEntry>() as u32, header.snapshot_size)?;
    let at_most = |field, found: u32, most: usize| {
        check(found as usize <= most, field, format!("at most {most}"), found)
    };
    at_most("record_count", header.record_count, MAX_RECORDS)?;
    at_most("snapshot_count", header.snapshot_count, MAX_RECORDS)?;
    at_most("strings_size", header.strings_size, MAX_STRINGS)?;
    at_most("slot_count", header.slot_count, MAX_SLOTS as usize)?;
    at_most("server_count", header.server_count, MAX_SLOTS as usize)?;
    check(header.record_count > 0, "record_count", "at least 1", 0)?;
    check(header.slot_count > 0, "slot_count", "at least 1", 0)?;
    check(header.server_count > 0, "server_count", "at least 1", 0)?;
    // Products of the limits above: far below 2^64.
    let records = u64::from(header.record_count) * u64::from(header.record_size);
    let snapshots = u64::from(header.snapshot_count) * u64::from(header.snapshot_size);
    let line = LINE as u64;
    let region_block = size_of::<Header>() as u64;
    let primary_block = region_block + 8 * REGION_BLOCK_WORDS as u64;
    let records_at = primary_block + line;
    equal("region_block", region_block, header.region_block)?;
    equal("primary_block", primary_block, header.primary_block)?;
    equal("records_offset", records_at, header.records_offset)?;
    equal("snapshots_offset", records_at + records, header.snapshots_offset)?;
    equal("strings_offset", records_at + records + snapshots, header.strings_offset)?;
    let end = header.strings_offset + u64::from(header.strings_size);
    equal("slots_offset", end.next_multiple_of(PAGE as u64), header.slots_offset)
}

/// The parts of a slot follow each other on lines of their own, and the slots fill the file.
fn check_slot(header: &Header) -> Checked<()> {
    let mut next = LINE as u64;
    let mut part = |field: &str, offset: u32, bytes: u64| {
        equal(field, next, u64::from(offset))?;
        next = (next + bytes).next_multiple_of(LINE as u64);
        Ok::<(), Fault>(())
    };
    let (drained, single) = (u64::from(header.drained_count), u64::from(header.single_count));
    part("drained_offset", header.drained_offset, 8 * drained)?;
    part("single_offset", header.single_offset, 8 * single)?;
    part("gauges_offset", header.gauges_offset, 16 * u64::from(header.gauges_count))?;
    let publications = u64::from(header.publications_size);
    check(publications.is_multiple_of(8), "publications_size", "a multiple of 8", publications)?;
    part("publications_offset", header.publications_offset, publications)?;
    part("ledger_offset", header.ledger_offset, 8 * (1 + 2 * drained + single))?;
    // Records appended to a running region would use room behind the parts, so a stride may be
    // larger than what is used; it may not be smaller.
    let stride = header.slot_stride;
    let fits = stride.is_multiple_of(LINE as u64) && stride >= next && stride <= 1 << 32;
    check(fits, "slot_stride", format!("a multiple of {LINE}, at least {next}"), stride)?;
    // What a later build may put behind the slots is left alone, up to where the leases lie.
    let size = header.slots_offset + u64::from(header.slot_count) * stride;
    let fits = (size..=MAX_FILE).contains(&header.file_size);
    check(fits, "file_size", format!("{size} to {MAX_FILE}"), header.file_size)
}

/// Leases are locks on bytes from here on; nothing else is.
const MAX_FILE: u64 = 1 << 40;

/// The strings of a head, and how to read one.
struct Strings<'a>(&'a [u8]);

impl<'a> Strings<'a> {
    /// The limit comes before any copy: thousands of entries may name the same megabytes.
    fn bytes(&self, field: &str, text: Text, most: usize) -> Checked<&'a [u8]> {
        let (start, len) = (text.offset as usize, text.len as usize);
        check(len <= most, field, format!("at most {most} bytes"), format!("{len} bytes"))?;
        let found = start.checked_add(len).and_then(|end| self.0.get(start..end));
        found.ok_or_else(|| Fault {
            field: field.into(),
            expected: format!("a range within {} bytes of strings", self.0.len()),
            found: format!("offset {start}, length {len}"),
        })
    }

    fn text(&self, field: &str, text: Text, most: usize) -> Checked<String> {
        let bytes = self.bytes(field, text, most)?;
        let valid = std::str::from_utf8(bytes).map_err(|_| Fault {
            field: field.into(),
            expected: "UTF-8".into(),
            found: format!("\"{}\"", bytes[..bytes.len().min(64)].escape_ascii()),
        })?;
        Ok(valid.into())
    }

    fn labels(&self, field: &str, text: Text) -> Checked<Vec<(String, String)>> {
        let mut rest = self.bytes(field, text, MAX_LABELS_SIZE)?;
        let mut next = || {
            let (len, tail) = rest.split_first_chunk::<2>()?;
            let (text, tail) = tail.split_at_checked(usize::from(u16::from_ne_bytes(*len)))?;
            rest = tail;
            std::str::from_utf8(text).ok().map(String::from)
        };
        let mut labels = Vec::new();
        let mut read = 0;
        while read < text.len as usize {
            check(
                labels.len() < MAX_LABELS,
                field,
                format!("at most {MAX_LABELS} labels"),
                "more",
            )?;
            let (Some(key), Some(value)) = (next(), next()) else {
                return Err(Fault {
                    field: field.into(),
                    expected: "pairs of a length and so many bytes of UTF-8".into(),
                    found: format!("something else after {} labels", labels.len()),
                });
            };
            read += 4 + key.len() + value.len();
            labels.push((key, value));
        }
        Ok(labels)
    }
}

fn named<T: Copy>(table: &[(u8, T)], field: &str, found: u8) -> Checked<T> {
    let value = table.iter().find(|(code, _)| *code == found).map(|(_, value)| *value);
    value.ok_or_else(|| Fault {
        field: field.into(),
        expected: format!("1 to {}", table.len()),
        found: found.to_string(),
    })
}

fn entries<T: AnyBitPattern>(head: &[u8], offset: u64, count: u32) -> Vec<T> {
    let bytes = &head[offset as usize..];
    bytes.chunks_exact(size_of::<T>()).take(count as usize).map(pod_read_unaligned).collect()
}

impl Layout {
    /// Reads the layout out of `head`, the file's bytes before slot 0, under its checked header.
    pub(crate) fn decode(header: &Header, head: &[u8]) -> Checked<Layout> {
        equal("slots_offset", header.slots_offset, head.len() as u64)?;
        let strings_at = header.strings_offset as usize;
        let strings_end = strings_at + header.strings_size as usize;
        let hash = crc32fast::hash(&head[header.records_offset as usize..strings_end]);
        check(
            hash == header.schema_hash,
            "schema_hash",
            format!("{hash:#010x}"),
            format!("{:#010x}", header.schema_hash),
        )?;
        let strings = Strings(&head[strings_at..strings_end]);
        let records: Vec<RecordEntry> = entries(head, header.records_offset, header.record_count);
        let snapshots: Vec<SnapshotEntry> =
            entries(head, header.snapshots_offset, header.snapshot_count);

        for (i, entry) in records.iter().enumerate() {
            check(entry.kind != 0, &format!("records[{i}].kind"), "at least 1", 0)?;
        }
        // Kinds that a later build appends are stepped over, so positions shift.
        let known: Vec<usize> = (0..records.len())
            .filter(|i| [KIND_COUNTER, KIND_GAUGE].contains(&records[*i].kind))
            .collect();
        let mut schema_records = Vec::with_capacity(known.len());
        for &i in &known {
            schema_records.push(record(&records[i], i, header.snapshot_count, &strings)?);
        }
        let mut shapes = Vec::with_capacity(snapshots.len());
        let mut spans = Vec::with_capacity(snapshots.len());
        for (i, entry) in snapshots.iter().enumerate() {
            let shape = snapshot(entry, i, &known, &schema_records, &strings)?;
            spans.push(span(entry, i, header)?);
            shapes.push(shape);
        }
        let namespace = strings.text("namespace", header.namespace, MAX_NAME)?;
        let schema = Schema::new(namespace, schema_records, shapes).map_err(|error| Fault {
            field: "records".into(),
            expected: "a valid schema".into(),
            found: error.to_string(),
        })?;
        let mut layout = Layout {
            places: Vec::with_capacity(known.len()),
            snapshots: spans,
            drained: words(header.drained_offset, header.drained_count),
            single: words(header.single_offset, header.single_count),
            gauges: words(header.gauges_offset, 2 * header.gauges_count),
            accounts: words(
                header.ledger_offset,
                1 + 2 * header.drained_count + header.single_count,
            ),
            stride: (header.slot_stride / 8) as usize,
            slots_offset: header.slots_offset as usize,
            region_block: header.region_block as usize,
            primary_block: header.primary_block as usize,
            slot_count: header.slot_count,
            server_count: header.server_count,
            file_size: header.file_size as usize,
            drained_records: Vec::new(),
            single_records: Vec::new(),
            gauge_records: Vec::new(),
            schema,
        };
        layout.check_overlap()?;
        layout.place_records(&known, &records)?;
        layout.index_records();
        Ok(layout)
    }

    /// Finds each record's place from its cell's offset, and checks that no two share one.
    fn place_records(&mut self, known: &[usize], entries: &[RecordEntry]) -> Checked<()> {
        // Every counter cell belongs to a record, so that totals can be listed by cell.
        for (field, span, mode) in [
            ("drained_count", self.drained, CounterMode::Drained),
            ("single_count", self.single, CounterMode::SingleWriter),
        ] {
            let records = self.schema.records().iter();
            let count = records.filter(|r| r.kind == Kind::Counter(mode)).count();
            equal(field, count, span.len)?;
        }
        let mut taken = HashSet::new();
        for (n, &i) in known.iter().enumerate() {
            let entry = &entries[i];
            let record = &self.schema.records()[n];
            let word = entry.cell as usize / 8;
            let index = |span: Span| {
                let inside = (span.start..span.start + span.len).contains(&word);
                inside.then(|| word - span.start)
            };
            let place = match (record.kind, record.snapshot) {
                (Kind::Counter(CounterMode::Drained), _) => index(self.drained).map(Place::Drained),
                (Kind::Counter(CounterMode::SingleWriter), _) => {
                    index(self.single).map(Place::Single)
                }
                (Kind::Gauge(_), None) => {
                    index(self.gauges).filter(|n| n % 2 == 0).map(|n| Place::Gauge(n / 2))
                }
                (Kind::Gauge(_), Some(snapshot)) => {
                    let field = n - self.schema.snapshots()[snapshot].records.start;
                    Some(Place::Field { snapshot, field })
                }
            };
            let field = format!("records[{i}].cell");
            let place = place.ok_or_else(|| Fault {
                field: field.clone(),
                expected: format!("an offset within the part of {}s", record.kind),
                found: entry.cell.to_string(),
            })?;
            self.places.push(place);
            let id = RecordId(n);
            equal(&field, self.cell_offset(id) as u32, entry.cell)?;
            let account = format!("records[{i}].account");
            equal(&account, self.account_offset(id) as u32, entry.account)?;
            check(taken.insert(entry.cell), &field, "a cell of its own", entry.cell)?;
        }
        Ok(())
    }

    /// No two snapshots share a word.
    fn check_overlap(&self) -> Checked<()> {
        let mut spans: Vec<Span> = self.snapshots.clone();
        spans.sort_by_key(|span| span.start);
        for pair in spans.windows(2) {
            let end = pair[0].start + pair[0].len;
            let expected = format!("at least {}", 8 * end);
            check(end <= pair[1].start, "snapshots.offset", expected, 8 * pair[1].start)?;
        }
        Ok(())
    }
}

fn words(offset: u32, len: u32) -> Span {
    Span { start: offset as usize / 8, len: len as usize }
}

fn record(
    entry: &RecordEntry,
    i: usize,
    snapshot_count: u32,
    strings: &Strings<'_>,
) -> Checked<Record> {
    let field = |name: &str| format!("records[{i}].{name}");
    let kind = match entry.kind {
        KIND_COUNTER => Kind::Counter(named(&COUNTER_MODES, &field("variant"), entry.variant)?),
        _ => Kind::Gauge(named(&VALUE_TYPES, &field("variant"), entry.variant)?),
    };
    let snapshot = match (entry.snapshot, kind) {
        (NO_SNAPSHOT, _) => None,
        (snapshot, Kind::Gauge(_)) if snapshot < snapshot_count => Some(snapshot as usize),
        (found, _) => {
            let expected = format!("{NO_SNAPSHOT}, or for a gauge a number below {snapshot_count}");
            check(false, &field("snapshot"), expected, found)?;
            None
        }
    };
    Ok(Record {
        name: strings.text(&field("name"), entry.name, MAX_NAME)?,
        labels: strings.labels(&field("labels"), entry.labels)?,
        unit: strings.text(&field("unit"), entry.unit, MAX_NAME)?,
        help: strings.text(&field("help"), entry.help, MAX_HELP)?,
        kind,
        rollup: named(&ROLLUPS, &field("rollup"), entry.rollup)?,
        scope: named(&SCOPES, &field("scope"), entry.scope)?,
        lifetime: named(&LIFETIMES, &field("lifetime"), entry.lifetime)?,
        snapshot,
    })
}

fn snapshot(
    entry: &SnapshotEntry,
    i: usize,
    known: &[usize],
    records: &[Record],
    strings: &Strings<'_>,
) -> Checked<SnapshotShape> {
    let field = |name: &str| format!("snapshots[{i}].{name}");
    let count = entry.record_count as usize;
    let first = known.iter().position(|k| *k == entry.first_record as usize);
    let range = first.map(|first| first..first.saturating_add(count)).filter(|range| {
        let members = records.get(range.clone());
        (1..=MAX_FIELDS).contains(&count)
            && members.is_some_and(|m| m.iter().all(|r| r.snapshot == Some(i)))
            && records.iter().filter(|r| r.snapshot == Some(i)).count() == count
    });
    let range = range.ok_or_else(|| Fault {
        field: field("first_record"),
        expected: "the first of 1 to 64 gauges that name this snapshot, one after another".into(),
        found: format!("{} and {count} records", entry.first_record),
    })?;
    let shape = SnapshotShape {
        name: strings.text(&field("name"), entry.name, MAX_NAME)?,
        labels: strings.labels(&field("labels"), entry.labels)?,
        scope: named(&SCOPES, &field("scope"), entry.scope)?,
        lifetime: named(&LIFETIMES, &field("lifetime"), entry.lifetime)?,
        stale_after_ns: entry.stale_after,
        records: range,
    };
    let like = |r: &Record| (r.scope, r.lifetime) == (shape.scope, shape.lifetime);
    let alike = records[shape.records.clone()].iter().all(like);
    check(alike, &field("scope"), "scope and lifetime of its records", "others")?;
    Ok(shape)
}

fn span(entry: &SnapshotEntry, i: usize, header: &Header) -> Checked<Span> {
    let len = HEAD_WORDS + entry.record_count as usize;
    let (start, end) = (u64::from(entry.offset), u64::from(entry.offset) + 8 * len as u64);
    let first = u64::from(header.publications_offset);
    let last = first + u64::from(header.publications_size);
    let fits = start.is_multiple_of(8) && start >= first && end <= last;
    let expected = format!("{len} words between {first} and {last}");
    check(fits, &format!("snapshots[{i}].offset"), expected, start)?;
    Ok(Span { start: entry.offset as usize / 8, len })
}

const _: () = assert!(8 * BLOCK_WORDS == LINE);

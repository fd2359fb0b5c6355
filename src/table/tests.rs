//! Rollups against the plain arithmetic, and which of several publications counts.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::schema::{GaugeDef, SnapshotDef};

const SLOTS: usize = 4;

fn any_finite() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(-0.0), Just(1.0), -1e9..1e9f64]
}

proptest! {
    #[test]
    fn rollups_are_the_plain_arithmetic(values in vec(any_finite(), 0..20)) {
        let roll = |rollup| roll_up(rollup, values.iter().copied());
        if values.is_empty() {
            for rollup in [Rollup::Sum, Rollup::Mean, Rollup::Max, Rollup::Min] {
                prop_assert_eq!(roll(rollup), None, "nothing is absent, not 0");
            }
            return Ok(());
        }
        let sum: f64 = values.iter().sum();
        let near = |found: Option<f64>, expected: f64| {
            (found.unwrap() - expected).abs() <= 1e-9 * (1.0 + values.len() as f64 * 1e9)
        };
        prop_assert!(near(roll(Rollup::Sum), sum));
        prop_assert!(near(roll(Rollup::Mean), sum / values.len() as f64));
        let sorted = {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            sorted
        };
        prop_assert_eq!(roll(Rollup::Max), sorted.last().copied());
        prop_assert_eq!(roll(Rollup::Min), sorted.first().copied());
    }

    #[test]
    fn rollups_do_not_depend_on_the_order(mut values in vec(-1000..1000i32, 1..12)) {
        let roll = |values: &[i32], rollup| roll_up(rollup, values.iter().map(|v| f64::from(*v)));
        let rollups = [Rollup::Sum, Rollup::Mean, Rollup::Max, Rollup::Min];
        let before = rollups.map(|rollup| roll(&values, rollup));
        values.reverse();
        prop_assert_eq!(before, rollups.map(|rollup| roll(&values, rollup)));
    }
}

/// Record 0: alone, of the owner. 1: alone, of the region. 2 and 3: snapshot 0, of the owner.
/// 4 and 5: snapshot 1, shared and stale after 100 ns.
fn layout() -> Arc<Layout> {
    let schema = Schema::builder("t")
        .gauge(GaugeDef::u64("own"))
        .gauge(GaugeDef::u64("kept").lifetime(Lifetime::Region))
        .snapshot(SnapshotDef::new("s").gauge(GaugeDef::u64("a")).gauge(GaugeDef::f64("b").mean()))
        .snapshot(
            SnapshotDef::new("e")
                .shared()
                .stale_after(std::time::Duration::from_nanos(100))
                .gauge(GaugeDef::u64("running"))
                .gauge(GaugeDef::f64("usage").mean()),
        )
        .build()
        .unwrap();
    Arc::new(Layout::of(&schema, SLOTS as u32, SLOTS as u32))
}

const NOW: u64 = 1000;

fn table() -> GaugeTable {
    let mut table = GaugeTable::new(&layout());
    table.now = NOW;
    table
}

/// As a reader fills it in: the stamp, and a word for each present bit.
fn publish(table: &mut GaugeTable, slot: usize, snapshot: usize, stamp: Stamp, values: [u64; 2]) {
    let records = table.schema().snapshots()[snapshot].records.clone();
    let (words, stamps) = table.row_mut(slot);
    stamps[snapshot] = Some(stamp);
    for (field, id) in records.enumerate() {
        words[id] = (stamp.present >> field & 1 == 1).then_some(values[field]);
    }
}

fn stamp(time: u64, sequence: u64) -> Stamp {
    Stamp { sequence, reset: 0, time, present: 0b11 }
}

const ALIVE: [SlotState; SLOTS] = [SlotState::Alive; SLOTS];
const DEAD: [SlotState; SLOTS] = [SlotState::Dead; SLOTS];

fn values(table: &GaugeTable, record: usize, states: &[SlotState]) -> Vec<Value> {
    table.values(RecordId(record), states).collect()
}

#[test]
fn what_was_never_published_is_absent_and_zero_is_a_value() {
    let mut table = table();
    table.settle();
    for record in 0..6 {
        assert_eq!(values(&table, record, &ALIVE), []);
    }
    publish(&mut table, 1, 0, Stamp { present: 0b10, ..stamp(900, 2) }, [7, 0.0f64.to_bits()]);
    publish(&mut table, 2, 0, stamp(900, 2), [0, 1.0f64.to_bits()]);
    table.row_mut(3).0[0] = Some(0);
    table.settle();
    assert_eq!(values(&table, 0, &ALIVE), [Value::U64(0)]);
    assert_eq!(values(&table, 2, &ALIVE), [Value::U64(0)]);
    assert_eq!(values(&table, 3, &ALIVE), [Value::F64(0.0), Value::F64(1.0)]);
    let mean = roll_up(Rollup::Mean, table.values(RecordId(3), &ALIVE).map(Value::as_f64));
    assert_eq!(mean, Some(0.5), "0.0 counts in a mean, a silent server does not");
}

#[test]
fn values_go_with_their_owner_unless_they_are_the_regions() {
    let mut table = table();
    for slot in 0..SLOTS {
        let n = slot as u64;
        table.row_mut(slot).0[0] = Some(n);
        table.row_mut(slot).0[1] = Some(n);
        publish(&mut table, slot, 0, stamp(900, 2), [n, 0]);
    }
    table.settle();
    let states = [SlotState::Alive, SlotState::Dead, SlotState::Released, SlotState::Free];
    for record in [0, 2] {
        assert_eq!(values(&table, record, &states), [Value::U64(0)]);
    }
    assert_eq!(values(&table, 1, &states), [0, 1, 2, 3].map(Value::U64));
    table.forget_owned(0);
    assert_eq!(values(&table, 0, &states), []);
    assert_eq!(table.stamp(0, 0), None);
    assert_eq!(values(&table, 1, &states).len(), 4);
}

#[test]
fn a_publication_is_stale_after_and_not_at_its_time() {
    for (time, counts) in [(NOW - 99, true), (NOW - 100, true), (NOW - 101, false), (NOW + 5, true)]
    {
        let mut table = table();
        publish(&mut table, 0, 1, stamp(time, 2), [3, 0]);
        // Without `stale_after` none is ever stale.
        publish(&mut table, 0, 0, stamp(0, 2), [3, 0]);
        table.settle();
        assert_eq!(table.newest(1), counts.then_some(0), "published at {time}");
        assert_eq!(values(&table, 4, &ALIVE).len(), usize::from(counts));
        assert_eq!(values(&table, 2, &ALIVE).len(), 1);
    }
}

/// It would win for ever, and never be stale.
#[test]
fn a_publication_of_a_time_to_come_is_absent() {
    for (ahead, counts) in [(AHEAD_NS, true), (AHEAD_NS + 1, false), (u64::MAX - NOW, false)] {
        let mut table = table();
        publish(&mut table, 0, 1, stamp(NOW, 2), [3, 0]);
        publish(&mut table, 1, 1, stamp(NOW + ahead, 2), [4, 0]);
        table.settle();
        assert_eq!(table.newest(1), Some(usize::from(counts)), "{ahead} ns ahead");
    }
}

#[test]
fn a_stale_newest_does_not_bring_an_older_one_back() {
    let mut table = table();
    publish(&mut table, 0, 1, stamp(500, 2), [3, 0]);
    publish(&mut table, 1, 1, stamp(800, 2), [4, 0]);
    table.settle();
    assert_eq!((table.newest(1), values(&table, 4, &ALIVE)), (None, vec![]));
}

proptest! {
    /// The newest wins, also when its server is dead; ties go to the larger sequence, then to the
    /// lower slot. Few values, so that ties are common.
    #[test]
    fn the_newest_publication_counts_and_no_other(
        published in vec(prop::option::of((895..905u64, 1..4u64)), SLOTS),
    ) {
        let mut table = table();
        for (slot, publication) in published.iter().enumerate() {
            if let Some((time, half)) = publication {
                publish(&mut table, slot, 1, stamp(*time, 2 * half), [slot as u64, 0]);
            }
        }
        table.settle();
        let mut expected: Option<(usize, (u64, u64))> = None;
        for (slot, publication) in published.iter().enumerate() {
            let Some((time, half)) = *publication else { continue };
            let stale = NOW - time > 100;
            if !stale && expected.is_none_or(|(_, best)| (time, half) > best) {
                expected = Some((slot, (time, half)));
            }
        }
        let expected = expected.map(|(slot, _)| slot);
        prop_assert_eq!(table.newest(1), expected);
        let value: Vec<_> = expected.map(|slot| Value::U64(slot as u64)).into_iter().collect();
        prop_assert_eq!(&values(&table, 4, &DEAD), &value);
        prop_assert_eq!(&values(&table, 4, &ALIVE), &value);
    }

    #[test]
    fn counters_sum_over_slots(counts in vec(any::<u64>(), SLOTS)) {
        let schema = Schema::builder("t").counter("a").counter("b").build().unwrap();
        let layout = Arc::new(Layout::of(&schema, 1, SLOTS as u32));
        let mut table = CounterTable::new(&layout);
        prop_assert!(table.is_zero());
        for (slot, count) in counts.iter().enumerate() {
            table.row_mut(slot).0[1] = *count;
        }
        let sum = counts.iter().fold(0u64, |sum, n| sum.wrapping_add(*n));
        prop_assert_eq!((table.sum(RecordId(0)), table.sum(RecordId(1))), (0, sum));
        let mut copy = CounterTable::new(&layout);
        copy.copy_row(&table, 2);
        prop_assert_eq!((copy.get(2, RecordId(1)), copy.get(1, RecordId(1))), (counts[2], 0));
    }
}

#[test]
fn a_cleared_counter_table_is_zero_whoever_wrote_to_it() {
    let schema = Schema::builder("t").counter("a").counter("b").build().unwrap();
    let layout = Arc::new(Layout::of(&schema, 2, 2));
    let mut full = CounterTable::new(&layout);
    full.drained_mut().fill(7);
    let none = CounterTable::new(&layout);
    let writers: [&dyn Fn(&mut CounterTable); 4] = [
        &|table| table.row_mut(1).0[0] = 3,
        &|table| table.drained_mut()[0] = 3,
        &|table| table.copy_row(&full, 1),
        &|table| table.set_difference(&full, &none, 0),
    ];
    let mut table = CounterTable::new(&layout);
    for write in writers {
        write(&mut table);
        assert!(!table.is_zero());
        table.clear();
        assert!(table.is_zero());
        table.clear();
        assert!(table.is_zero());
    }
}

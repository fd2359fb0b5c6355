//! The primary killed at random instants of a tight drain loop, with a standby: totals never step
//! back, nothing is counted twice, and what is lost is counted.
//!
//! The one who kills is the one who counts, at full speed until the instant of the kill: so a kill
//! often falls into the middle of a drain, and what was added is known exactly after each.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use shmstats::{Counter, Error, Inspector, Region, Schema, SingleWriterCounter};

use shmstats::schema::{CounterDef, RecordId};

use crate::ack::Acks;
use crate::actor::{self, Actor, Role};
use crate::dice::{Dice, times};
use crate::support::until;

tests![primaries_are_killed_at_random];

pub(crate) const ROLES: &[Role] = &[("contender", contender)];

/// How often the lease was taken; who has it, as a pid; how often that one has drained.
const TAKEN: usize = 0;
const HOLDER: usize = 1;
const DRAINS: usize = 2;
/// How often one of them has added one to each counter of its own slot.
const OWN: usize = 3;

/// How often a standby tries.
const TICK: Duration = Duration::from_millis(1);

/// Drained counters: enough of them that a kill often falls into the middle of a drain.
const COUNTERS: usize = 32;

fn schema() -> Schema {
    let drained = (0..COUNTERS).map(|i| CounterDef::new(format!("drained_{i}")));
    let single = CounterDef::new("single").single_writer();
    let builder = drained.fold(Schema::builder("kills"), |builder, def| builder.counter(def));
    builder.counter(single).build().expect("a schema")
}

/// Tries to be primary at each tick; then drains until it is killed.
fn contender(arguments: &[String]) {
    let region = Region::open(&arguments[0]).expect("the region");
    let acks = Acks::open(&arguments[1]);
    actor::say("ok");
    let mut primary = loop {
        match region.primary() {
            Ok(primary) => break primary,
            Err(Error::Held { .. }) => std::thread::sleep(TICK),
            Err(error) => panic!("{error}"),
        }
    };
    // With counts of its own there is always something to drain, also while the one who kills
    // waits for a processor: else a kill would hardly ever fall into a drain on a busy machine.
    let mut own = Writer::new(&region, 1);
    let mut interval = primary.interval();
    primary.drain_into(&mut interval);
    acks.set(DRAINS, 1);
    acks.set(HOLDER, u64::from(std::process::id()));
    acks.word(TAKEN).fetch_add(1, Ordering::SeqCst);
    loop {
        own.add();
        acks.word(OWN).fetch_add(1, Ordering::SeqCst);
        primary.drain_into(&mut interval);
        acks.word(DRAINS).fetch_add(1, Ordering::SeqCst);
    }
}

fn primaries_are_killed_at_random() {
    let kills = times(1_000);
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in /dev/shm");
    let path = folder.path().join("kills.shmstats");
    let region = Region::create(&path, &schema(), 1).expect("a region");
    let records: Vec<RecordId> = (0..COUNTERS)
        .map(|i| region.schema().find(&format!("drained_{i}"), &[]).expect("a record"))
        .collect();
    let acks = Acks::create(folder.path().join("acks"), 4);
    let start = || {
        let mut contender = Actor::start("contender", &[&path, &acks.path()]);
        assert_eq!(contender.answer(), "ok");
        contender
    };
    let mut writer = Writer::new(&region, 0);
    let mut primary = start();
    until("the first primary", || acks.get(HOLDER) == primary.pid().as_raw() as u64);
    let mut onlooker = Onlooker::new(Inspector::open(&path).expect("an inspector"), records);
    let mut dice = Dice::new();
    let mut lost = vec![0; COUNTERS];
    let (mut losses, mut largest) = (0, 0);
    let (mut slowest, mut drains) = (Duration::ZERO, 0);
    for kill in 1..=u64::from(kills) {
        let standby = start();
        // Counted in drains and not in time: the primary has been at it, however busy the machine.
        let wanted = acks.get(DRAINS) + dice.below(50);
        onlooker.look();
        // Last before the kill: a reading waits for the end of a drain, if it can have it.
        until("the primary to drain", || acks.get(DRAINS) >= wanted);
        (0..dice.below(500)).for_each(|_| writer.add());
        primary.kill();
        drains += acks.get(DRAINS);
        let killed = Instant::now();
        until("the standby to take over", || {
            onlooker.look();
            writer.add();
            acks.get(TAKEN) > kill
        });
        slowest = slowest.max(killed.elapsed());
        assert_eq!(acks.get(HOLDER), standby.pid().as_raw() as u64);
        primary = standby;

        let added = writer.added;
        let single = onlooker.settled();
        assert_eq!(single, added, "single-writer counters lose nothing");
        let mut cells = 0;
        for (total, lost) in onlooker.last.iter().zip(&mut lost) {
            assert!(total + *lost <= added, "counted twice: {total} of {added}, {lost} lost");
            let more = added - *lost - total;
            *lost += more;
            largest = more.max(largest);
            cells += u64::from(more > 0);
        }
        assert!(cells <= 1, "{cells} counters lost something by one kill");
        losses += cells;
    }
    primary.kill();
    drop(region.primary().expect("the last one's lease"));
    let own = acks.get(OWN);
    for record in &onlooker.records {
        let total = onlooker.inspector.totals().in_slot(1, *record);
        assert!(
            (own..=own + u64::from(kills) + 1).contains(&total),
            "{total} of {own} by primaries"
        );
    }
    let observation = onlooker.inspector.observe().expect("an observation");
    let interrupted = observation.interrupted_drains;
    println!(
        "primary killed {kills} times after {drains} drains: {interrupted} drains interrupted, \
         of which {losses} lost something: {} of {} in all, {largest} at most; takeover after \
         {slowest:.1?} at most, with a tick of {TICK:?}; {} readings, none stepped back",
        lost.iter().sum::<u64>(),
        writer.added * COUNTERS as u64,
        onlooker.readings,
    );
    assert_eq!(observation.primary.takeovers, u64::from(kills) + 2);
    assert!(losses <= interrupted, "{losses} losses, but {interrupted} drains were interrupted");
    assert!(interrupted > 0, "no kill fell into a drain: this test has shown nothing");
    // A tick, and whatever else this machine does; a blocked one would wait for good.
    assert!(slowest < Duration::from_secs(30), "a takeover took {slowest:?}");
}

/// Adds one to each counter at a time.
struct Writer {
    drained: Vec<Counter>,
    single: SingleWriterCounter,
    added: u64,
}

impl Writer {
    fn new(region: &Region, slot: u32) -> Self {
        let server = region.claim(slot).expect("a slot");
        let drained = (0..COUNTERS).map(|i| server.counter(&format!("drained_{i}")));
        let drained = drained.map(|counter| counter.expect("a counter")).collect();
        let single = server.single_writer("single").expect("a counter");
        Writer { drained, single, added: 0 }
    }

    fn add(&mut self) {
        self.drained.iter().for_each(Counter::inc);
        self.single.inc();
        self.added += 1;
    }
}

/// Reads totals again and again, none of which may step back.
struct Onlooker {
    inspector: Inspector,
    records: Vec<RecordId>,
    last: Vec<u64>,
    readings: u64,
}

impl Onlooker {
    fn new(inspector: Inspector, records: Vec<RecordId>) -> Self {
        Onlooker { inspector, last: vec![0; records.len()], records, readings: 0 }
    }

    /// Whether the reading was sure.
    fn look(&mut self) -> bool {
        let totals = self.inspector.totals();
        for (record, last) in self.records.iter().zip(&mut self.last) {
            let now = totals.in_slot(0, *record);
            assert!(now >= *last, "{last} stepped back to {now}");
            *last = now;
        }
        self.readings += 1;
        totals.all_settled()
    }

    /// A sure reading; returns the single-writer total.
    fn settled(&mut self) -> u64 {
        until("a settled reading", || self.look());
        let single = self.inspector.schema().find("single", &[]).expect("a record");
        self.inspector.last_totals().in_slot(0, single)
    }
}

//! Servers killed at random instants while they count at full speed, a primary drains in a loop
//! and an onlooker reads: nothing that was acknowledged is lost, and nobody waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use shmstats::{Inspector, Primary, Region};

use crate::ack::Acks;
use crate::actor::{self, Actor, Role};
use crate::dice::{Dice, times};
use crate::support::{Place, until};

tests![servers_are_killed_at_random];

pub(crate) const ROLES: &[Role] = &[("victim", victim), ("survivor", survivor)];

const VICTIMS: u32 = 4;

/// A writer's words: what it has added to each counter, counted after each add.
fn drained_word(slot: u32) -> usize {
    2 * slot as usize
}

fn single_word(slot: u32) -> usize {
    drained_word(slot) + 1
}

/// The survivor's longest pair of adds in nanoseconds, of the clock and of its own work; how often
/// it gave the processor up by itself while adding; by how many KiB of memory it grew; and whether it
/// should end.
const LONGEST: usize = 2 * (VICTIMS as usize + 1);
const LONGEST_CPU: usize = LONGEST + 1;
const WAITS: usize = LONGEST + 2;
const GROWN: usize = LONGEST + 3;
const END: usize = LONGEST + 4;
const WORDS: usize = LONGEST + 5;

/// Region, acknowledgements, slot: adds to both kinds of counter until it is killed.
fn victim(arguments: &[String]) {
    let slot = arguments[2].parse().expect("a slot");
    let region = Region::open(&arguments[0]).expect("the region");
    // The predecessor has been reaped, so its slot can be had.
    let server = region.claim(slot).expect("the slot of one who was killed");
    let drained = server.counter("prompt").expect("a counter");
    let mut single = server.single_writer("single").expect("a counter");
    let acks = Acks::open(&arguments[1]);
    let (drained_ack, single_ack) = (acks.word(drained_word(slot)), acks.word(single_word(slot)));
    loop {
        drained.inc();
        drained_ack.fetch_add(1, Ordering::Release);
        single.inc();
        single_ack.fetch_add(1, Ordering::Release);
    }
}

/// As a victim, but it lives, and times its adds.
fn survivor(arguments: &[String]) {
    let region = Region::open(&arguments[0]).expect("the region");
    let server = region.claim(VICTIMS).expect("a slot");
    let drained = server.counter("prompt").expect("a counter");
    let mut single = server.single_writer("single").expect("a counter");
    let acks = Acks::open(&arguments[1]);
    let usage = || getrusage(UsageWho::RUSAGE_THREAD).expect("this thread's usage");
    let memory_before = resident_kib();
    let waits_before = usage().voluntary_context_switches();
    let worked = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a thread's own time");
    let (mut longest, mut longest_cpu) = (0, 0);
    while acks.get(END) == 0 {
        let (start, start_cpu) = (Instant::now(), worked());
        drained.inc();
        single.inc();
        longest_cpu = longest_cpu.max((worked() - start_cpu).num_nanoseconds() as u64);
        longest = longest.max(start.elapsed().as_nanos() as u64);
        acks.word(drained_word(VICTIMS)).fetch_add(1, Ordering::Release);
        acks.word(single_word(VICTIMS)).fetch_add(1, Ordering::Release);
    }
    acks.set(WAITS, (usage().voluntary_context_switches() - waits_before) as u64);
    acks.set(GROWN, resident_kib().saturating_sub(memory_before));
    acks.set(LONGEST, longest);
    acks.set(LONGEST_CPU, longest_cpu);
}

/// Memory of this process that is there, from /proc/self/status.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("its status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// Drains until told to stop; what it drained of both counters, and how often.
fn drain_until(stop: &AtomicBool, mut primary: Primary) -> (u64, u64, u64) {
    let mut interval = primary.interval();
    let (mut drained, mut single, mut drains) = (0, 0, 0);
    loop {
        let last = stop.load(Ordering::Acquire);
        primary.drain_into(&mut interval);
        drained += interval.delta("prompt");
        single += interval.delta("single");
        drains += 1;
        if last {
            return (drained, single, drains);
        }
        if drains % 16 == 0 {
            std::thread::yield_now();
        }
    }
}

/// Reads totals until told to stop; how often, and how many readings were not sure.
fn scrape_until(stop: &AtomicBool, mut inspector: Inspector) -> (u64, u64) {
    let (mut last, mut readings, mut unsure) = ((0, 0), 0, 0);
    while !stop.load(Ordering::Acquire) {
        let totals = inspector.totals();
        let now = (totals.get("prompt"), totals.get("single"));
        assert!(now.0 >= last.0 && now.1 >= last.1, "{last:?} stepped back to {now:?}");
        unsure += u64::from(!totals.all_settled());
        last = now;
        readings += 1;
        std::thread::yield_now();
    }
    (readings, unsure)
}

fn servers_are_killed_at_random() {
    let kills = times(1_000);
    let place = Place::new(VICTIMS + 1);
    let path = place.path();
    let acks = Acks::create(path.with_file_name("acks"), WORDS);
    let size = std::fs::metadata(&path).expect("the file").len();
    let slot_text = |slot: u32| slot.to_string();
    let start = |slot: u32| Actor::start("victim", &[&path, &acks.path(), &slot_text(slot)]);

    let survivor = Actor::start("survivor", &[&path, &acks.path()]);
    let mut victims: Vec<_> = (0..VICTIMS).map(|slot| Some(start(slot))).collect();
    let traces = actor::traces_of(&path);
    let (primary, inspector) = (place.primary(), Inspector::open(&path).expect("an inspector"));
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let mut dice = Dice::new();
    let mut killed = [0u64; VICTIMS as usize];
    let (drained, scraped) = std::thread::scope(|scope| {
        // Tells the threads also when an assertion below fails.
        let guard = SetOnDrop(&stop);
        let drainer = scope.spawn(|| drain_until(&stop, primary));
        let scraper = scope.spawn(|| scrape_until(&stop, inspector));
        for _ in 0..kills {
            let slot = dice.below(u64::from(VICTIMS)) as u32;
            // Half of the time it has counted since it was started; else it may be opening the
            // region, or claiming the slot.
            if dice.below(2) == 0 {
                let before = acks.get(single_word(slot));
                until("a victim to count", || {
                    let victim = victims[slot as usize].as_mut().expect("a victim");
                    assert!(victim.is_running(), "a victim could not start");
                    acks.get(single_word(slot)) > before
                });
            }
            dice.pause(Duration::from_millis(3));
            victims[slot as usize].take().expect("a victim").kill();
            killed[slot as usize] += 1;
            victims[slot as usize] = Some(start(slot));
        }
        for victim in victims.drain(..).flatten() {
            victim.kill();
        }
        killed.iter_mut().for_each(|count| *count += 1);
        acks.set(END, 1);
        assert!(survivor.end().success());
        drop(guard);
        (drainer.join().expect("the primary"), scraper.join().expect("the onlooker"))
    });

    let mut inspector = Inspector::open(&path).expect("an inspector");
    let grown = acks.get(GROWN);
    assert!(grown < 1024, "the survivor grew by {grown} KiB");
    let observation = inspector.observe().expect("an observation");
    let totals = inspector.totals().clone();
    let schema = place.region.schema();
    let (prompt, single) =
        (schema.find("prompt", &[]).expect("a record"), schema.find("single", &[]).expect("one"));
    let mut in_flight = 0;
    for slot in 0..=VICTIMS {
        let kills = killed.get(slot as usize).copied().unwrap_or(0);
        for (record, word) in [(prompt, drained_word(slot)), (single, single_word(slot))] {
            let (acked, total) = (acks.get(word), totals.in_slot(slot as usize, record));
            assert!(total >= acked, "slot {slot}: {acked} acknowledged, but the total is {total}");
            assert!(total <= acked + kills, "slot {slot}: {total} of {acked} after {kills} kills");
            in_flight += total - acked;
        }
    }
    assert_eq!((drained.0, drained.1), (totals.get("prompt"), totals.get("single")));
    assert_eq!(observation.interrupted_drains, 0);
    assert_eq!(std::fs::metadata(&path).expect("the file").len(), size);
    drop(inspector);
    assert_eq!(actor::traces_of(&path), traces, "descriptors and mappings of the region");
    for slot in 0..VICTIMS {
        drop(place.region.claim(slot).expect("a slot whose owner was reaped"));
    }
    let longest = Duration::from_nanos(acks.get(LONGEST));
    let longest_cpu = Duration::from_nanos(acks.get(LONGEST_CPU));
    println!(
        "kills: {} in {:.1?}; {} adds to drained and {} to single-writer counters; lost 0, \
         in flight {in_flight}; {} drains, {} readings ({} not sure); \
         a survivor's longest pair of adds {longest:.1?}, of which it worked \
         {longest_cpu:.1?} at most, and it waited {} times",
        killed.iter().sum::<u64>(),
        began.elapsed(),
        totals.get("prompt"),
        totals.get("single"),
        drained.2,
        scraped.0,
        scraped.1,
        acks.get(WAITS),
    );
    // Of the clock, as long as the machine lets it wait for a processor; of its own, next to
    // nothing.
    assert!(longest < Duration::from_secs(60), "an add took {longest:?}");
    assert!(longest_cpu < Duration::from_millis(100), "an add worked for {longest_cpu:?}");
    assert_eq!(acks.get(WAITS), 0, "a survivor waited for something while adding");
}

/// Ends the threads of a scope also when what they work beside fails.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

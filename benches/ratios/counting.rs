//! What a writer pays: counters, gauges, snapshots, against bare memory and against peers.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use nix::libc;
use shmstats::{Counter, SingleWriterCounter, monotonic_ns};

use crate::harness::{Case, sample};
use crate::report::{Goal, Row};
use crate::setting::{Setting, bare_words, everything};

/// A line of private memory.
#[repr(align(128))]
struct Private([u64; 16]);

/// Counting, five counters at a time.
pub(crate) fn counters(setting: &Setting) -> Vec<Row> {
    let (_region, servers) = setting.full_region("counting", &everything(), 1);
    let server = &servers[0];
    let drained: [Counter; 5] =
        std::array::from_fn(|n| server.counter(&format!("c{n}")).expect("declared"));
    let mut single: [SingleWriterCounter; 5] =
        std::array::from_fn(|n| server.single_writer(&format!("s{n}")).expect("declared"));
    let amounts: [u64; 5] = black_box([1, 2, 3, 4, 5]);

    let cells: &[AtomicU64; 5] = bare_words(5).try_into().expect("five words");
    let mut line = Box::new(Private([0; 16]));
    let private: *mut u64 = line.0.as_mut_ptr();
    let local = Mutex::new([0u64; 5]);
    let shared = SharedMutex::new();
    let peers = Peers::new();

    let mut cases = [
        Case::new("5 bare fetch_add", || {
            for (cell, n) in cells.iter().zip(amounts) {
                cell.fetch_add(n, Ordering::Relaxed);
            }
        }),
        Case::new("5 drained counters", || {
            for (counter, n) in drained.iter().zip(amounts) {
                counter.add(n);
            }
        }),
        Case::new("5 volatile adds, private", move || {
            for (place, n) in amounts.into_iter().enumerate() {
                volatile_add(private, place, n);
            }
        }),
        Case::new("5 single-writer counters", || {
            for (counter, n) in single.iter_mut().zip(amounts) {
                counter.add(n);
            }
        }),
        Case::new("std Mutex<[u64; 5]>", || {
            let mut fields = local.lock().expect("nobody panics");
            for (field, n) in fields.iter_mut().zip(amounts) {
                *field += n;
            }
        }),
        Case::new("process-shared pthread mutex", || shared.add(amounts)),
        Case::new("5 prometheus IntCounter", || {
            for (counter, n) in peers.prometheus.iter().zip(amounts) {
                counter.inc_by(n);
            }
        }),
        Case::new("5 prometheus-client Counter", || {
            for (counter, n) in peers.client.iter().zip(amounts) {
                counter.inc_by(n);
            }
        }),
        Case::new("5 metrics::counter!", || {
            metrics::counter!("m0").increment(amounts[0]);
            metrics::counter!("m1").increment(amounts[1]);
            metrics::counter!("m2").increment(amounts[2]);
            metrics::counter!("m3").increment(amounts[3]);
            metrics::counter!("m4").increment(amounts[4]);
        }),
        Case::new("5 metrics handles", || {
            for (counter, n) in peers.handles.iter().zip(amounts) {
                counter.increment(n);
            }
        }),
    ];
    let series = sample(&mut cases, setting.time);
    let [bare, drained, volatile, single, mutex, peers @ ..] = series.as_slice() else {
        unreachable!("as many as cases")
    };
    let group = "counting: a record of five";
    let row = |case, other, goal| Row::compare(group, case, &[other], goal);
    let mut rows = vec![
        Row::alone(group, bare, Goal::None),
        row(drained, bare, Goal::Ratio(1.10)),
        Row::alone(group, volatile, Goal::None),
        row(single, volatile, Goal::Ratio(1.5)),
        row(single, mutex, Goal::Ratio(0.10)),
        row(single, drained, Goal::None),
        row(mutex, drained, Goal::None),
    ];
    rows.extend(peers.iter().map(|peer| row(peer, drained, Goal::None)));
    rows
}

#[inline(always)]
fn volatile_add(line: *mut u64, place: usize, n: u64) {
    // SAFETY: `line` points to 16 words that live as long as the case; `place` is below 5.
    let word = unsafe { line.add(place) };
    // SAFETY: as above; nobody else has a reference to the line.
    let value = unsafe { word.read_volatile() };
    // SAFETY: as above.
    unsafe { word.write_volatile(value.wrapping_add(n)) };
}

/// Gauges and snapshots.
pub(crate) fn values(setting: &Setting) -> Vec<Row> {
    let (_region, servers) = setting.full_region("values", &everything(), 4);
    let gauge = servers[0].gauge::<u64>("lone").expect("declared");
    let names = ["v0", "v1", "v2", "v3"];
    let mut snapshots = servers.iter().map(|server| {
        let mut snapshot = server.snapshot("load", &[]).expect("declared");
        let fields = names.map(|name| snapshot.field::<u64>(name).expect("declared"));
        fields.iter().for_each(|field| snapshot.set(*field, 1));
        (snapshot, fields)
    });
    let mut next = || snapshots.next().expect("as many as cases");
    let ((mut at, _), (mut clocked, _), (mut set_too, fields)) = (next(), next(), next());
    let bare = bare_words(48);
    let (cell, words, seven) = (&bare[0], &bare[16..21], &bare[32..40]);
    let values = black_box([1u64, 2, 3, 4]);
    let now = black_box(monotonic_ns());
    // Another value each time, as gauges have.
    let (mut n, mut m) = (0_u64, 0_u64);

    let mut cases = [
        Case::new("bare store", || {
            n += 1;
            cell.store(n, Ordering::Relaxed);
        }),
        Case::new("Gauge::set", || {
            m += 1;
            gauge.set(m);
        }),
        Case::new("bare seqlock write of 4", || bare_seqlock(words, values)),
        Case::new("bare seqlock write of 7", || bare_seqlock(seven, [1, 2, 3, 4, 5, 6, now])),
        Case::new("publish_at(now) of 4 values", || at.publish_at(now)),
        Case::new("clock read", || {
            black_box(monotonic_ns());
        }),
        Case::new("publish() of 4 values", || clocked.publish()),
        Case::new("4 × Snapshot::set, publish_at(now)", || {
            for (field, value) in fields.into_iter().zip(values) {
                set_too.set(field, value);
            }
            set_too.publish_at(now);
        }),
    ];
    let series = sample(&mut cases, setting.time);
    let [store, set, seqlock, seven, publish_at, clock, publish, set_too] = series.as_slice()
    else {
        unreachable!("as many as cases")
    };
    let group = "gauges and snapshots";
    vec![
        Row::alone(group, store, Goal::None),
        Row::compare(group, set, &[store], Goal::Ratio(1.2)),
        Row::alone(group, seqlock, Goal::None),
        Row::compare(group, publish_at, &[seqlock], Goal::Ratio(1.5)),
        Row::compare(group, publish_at, &[seven], Goal::None)
            .note("the values, their time, the reset number and the present bits"),
        Row::compare(group, set_too, &[seqlock], Goal::None),
        Row::alone(group, clock, Goal::None),
        Row::compare(group, publish, &[publish_at, clock], Goal::Ratio(1.1)),
    ]
}

/// What a writer of so many values cannot do without.
#[inline(always)]
fn bare_seqlock<const N: usize>(words: &[AtomicU64], values: [u64; N]) {
    let sequence = words[0].load(Ordering::Relaxed);
    words[0].store(sequence + 1, Ordering::Relaxed);
    fence(Ordering::Release);
    for (word, value) in words[1..].iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
    words[0].store(sequence + 2, Ordering::Release);
}

/// What processes share today: a mutex in shared memory, and the fields behind it.
pub(crate) struct SharedMutex(&'static Guarded);

struct Guarded {
    mutex: UnsafeCell<MaybeUninit<libc::pthread_mutex_t>>,
    fields: UnsafeCell<[u64; 5]>,
}

// SAFETY: the fields are reached with the mutex held, and pthread mutexes are made to be shared.
unsafe impl Sync for SharedMutex {}

impl SharedMutex {
    pub(crate) fn new() -> Self {
        let memory = bare_words(size_of::<Guarded>() / 8 + 1);
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: mapped, zeroed, aligned to a page, large enough and never unmapped; all-zero
        // bytes are a valid `Guarded`.
        let guarded: &'static Guarded = unsafe { &*memory.as_ptr().cast() };
        let mutex = guarded.mutex.get().cast();
        // SAFETY: writes to the attributes, which are large enough.
        unsafe { libc::pthread_mutexattr_init(attributes.as_mut_ptr()) };
        // SAFETY: initialized by the line above.
        unsafe {
            libc::pthread_mutexattr_setpshared(
                attributes.as_mut_ptr(),
                libc::PTHREAD_PROCESS_SHARED,
            )
        };
        // SAFETY: nobody else knows the mutex yet.
        unsafe { libc::pthread_mutex_init(mutex, attributes.as_ptr()) };
        SharedMutex(guarded)
    }

    #[inline(always)]
    pub(crate) fn add(&self, amounts: [u64; 5]) {
        let mutex = self.0.mutex.get().cast();
        // SAFETY: `new` initialized it, and it never moves.
        unsafe { libc::pthread_mutex_lock(mutex) };
        // SAFETY: the mutex is held, so there is no other reference.
        let fields = unsafe { &mut *self.0.fields.get() };
        for (field, n) in fields.iter_mut().zip(amounts) {
            *field += n;
        }
        // SAFETY: locked above by this thread.
        unsafe { libc::pthread_mutex_unlock(mutex) };
    }
}

/// Counters of other crates.
struct Peers {
    prometheus: [prometheus::IntCounter; 5],
    client: [prometheus_client::metrics::counter::Counter; 5],
    handles: [metrics::Counter; 5],
}

impl Peers {
    fn new() -> Self {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        // A second group in one run finds the first one's, which does as well.
        let _ = metrics::set_global_recorder(recorder);
        let named = |n| prometheus::IntCounter::new(format!("p{n}"), "Peer").expect("a valid name");
        Peers {
            prometheus: std::array::from_fn(named),
            client: std::array::from_fn(|_| Default::default()),
            handles: [
                metrics::counter!("h0"),
                metrics::counter!("h1"),
                metrics::counter!("h2"),
                metrics::counter!("h3"),
                metrics::counter!("h4"),
            ],
        }
    }
}

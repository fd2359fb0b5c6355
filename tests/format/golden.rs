//! The golden file, read through the library.

use std::time::Duration;

use shmstats::{Inspector, Observation, Region, SlotState, Totals, Value};

use super::image::{Image, folder};
use super::sample;

pub(crate) const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/v1.shmstats");

/// What the region block's `boot_id` is in this boot.
fn this_boot() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&hex, 16).unwrap() | 1
}

/// The golden file as if it were of the present boot: its times and gauges mean something.
pub(crate) fn of_this_boot() -> Image {
    let mut image = Image::golden();
    let block = image.header("region_block");
    image.set("RegionBlock", block, "boot_id", this_boot());
    image
}

/// From before it has its name: else one that opens it at once would take it for another boot's,
/// and hide what its creator has set meanwhile.
#[test]
fn a_new_region_is_of_this_boot() {
    let image = Image::sample();
    let word = |name| image.get("RegionBlock", image.header("region_block"), name);
    assert_eq!((word("boot_id"), word("reset_number")), (this_boot(), 0));
    assert!((1..=shmstats::monotonic_ns()).contains(&word("reset_at")));
    let boot = image.get("Header", 0, "boot_id");
    assert_eq!(u64::from_be_bytes(boot.to_ne_bytes()) | 1, this_boot());
}

fn totals_of(inspector: &mut Inspector) -> [u64; 3] {
    let schema = inspector.schema().clone();
    let status = |status| [("model", "m \"1\""), ("status", status)];
    let ids = [
        schema.find("requests", &status("ok")).unwrap(),
        schema.find("requests", &status("error")).unwrap(),
        schema.find("sent", &[]).unwrap(),
    ];
    let totals: &Totals = inspector.totals();
    assert!(totals.all_settled());
    assert_eq!(ids.map(|id| totals.in_slot(0, id)), [105, 7, 12345]);
    ids.map(|id| totals.of(id))
}

fn gauge(observation: &Observation, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let schema = sample::schema();
    let id = schema.find(name, labels).expect("a gauge of the sample");
    observation.gauge_of(id)
}

#[test]
fn head_and_totals_are_read() {
    let mut inspector = Inspector::open(PATH).unwrap();
    assert_eq!(inspector.schema().difference(&sample::schema()), None);
    assert_eq!(inspector.schema(), &sample::schema());
    let region = inspector.region();
    assert_eq!((region.format_version, region.server_count, region.slot_count), (1, 2, 2));
    assert_eq!(region.file_size, std::fs::metadata(PATH).unwrap().len());
    assert_eq!(region.created_at, Duration::from_secs(1_700_000_000));
    // Slot 1 was being drained: of "ok" the intent counts, of "error" ledger and cell.
    assert_eq!(totals_of(&mut inspector), [105 + 30, 7 + 5, 12345 + 55]);
    let schema = inspector.schema().clone();
    let pending: u64 = schema.named("requests").map(|id| inspector.totals().pending(id)).sum();
    assert_eq!(pending, 5 + 4 + 2);
}

#[test]
fn owners_and_health_are_read() {
    let mut inspector = Inspector::open(PATH).unwrap();
    let observation = inspector.observe().unwrap();
    assert_eq!(observation.states, [SlotState::Dead, SlotState::Released]);
    assert_eq!(observation.owners.iter().map(|o| o.pid).collect::<Vec<_>>(), [4242, 4243]);
    assert_eq!(observation.owners.iter().map(|o| o.generation).collect::<Vec<_>>(), [2, 6]);
    let indices: Vec<_> = observation.owners.iter().map(|o| o.server_index).collect();
    assert_eq!(indices, [Some(0), None]);
    let primary = &observation.primary;
    assert_eq!((primary.alive, primary.takeovers, primary.pid), (false, 5, 4242));
    assert_eq!((primary.drains, primary.behind, primary.start_time), (9, 6, 77));
    assert!(!observation.attached);
    assert_eq!((observation.reset_number, observation.refused_servers), (1, 2));
    assert_eq!((observation.interrupted_drains, observation.skipped_writes), (3, 4));
}

#[test]
fn gauges_of_another_boot_mean_nothing() {
    let mut inspector = Inspector::open(PATH).unwrap();
    let observation = inspector.observe().unwrap();
    assert!(!observation.this_boot);
    assert_eq!(observation.reset_age, None);
    assert_eq!(gauge(&observation, "running", &[("engine", "0")]), None);
    assert_eq!(gauge(&observation, "temperature", &[]), None);
}

#[test]
fn gauges_of_this_boot_are_read() {
    let folder = folder();
    let path = of_this_boot().write(folder.path());
    let mut inspector = Inspector::open(path).unwrap();
    let observation = inspector.observe().unwrap();
    assert!(observation.this_boot);
    let engine = |name, engine| gauge(&observation, name, &[("engine", engine)]);
    // The newest publication wins, whoever is dead; 0.0 is a value.
    assert_eq!((engine("running", "0"), engine("kv_usage", "0")), (Some(0.0), Some(0.0)));
    // One that its writer died in does not count; a value that was not given is absent.
    assert_eq!((engine("running", "1"), engine("kv_usage", "1")), (Some(9.0), None));
    assert_eq!(observation.newest(1).map(|(slot, _)| slot), Some(1));
    assert_eq!(observation.newest(2).map(|(slot, _)| slot), Some(0));
    // Of lifetime Region: the smallest of 36.5 and -1.25.
    assert_eq!(gauge(&observation, "temperature", &[]), Some(-1.25));
    let schema = sample::schema();
    let temperature = schema.find("temperature", &[]).unwrap();
    assert_eq!(observation.gauge_in(0, temperature), Some(Value::F64(36.5)));
    // Gone with their owners.
    assert_eq!(gauge(&observation, "workers", &[]), None);
    assert_eq!(gauge(&observation, "in_flight", &[]), None);
    assert_eq!(gauge(&observation, "threads", &[("state", "running")]), None);
    // Stale.
    assert_eq!(gauge(&observation, "entries", &[]), None);
    assert_eq!(observation.newest(3), None);
}

#[test]
fn a_writer_keeps_the_counts_of_an_earlier_boot_and_hides_its_gauges() {
    let folder = folder();
    let path = Image::golden().write(folder.path());
    let region = Region::open(&path).unwrap();
    assert_eq!(region.schema(), &sample::schema());
    let mut inspector = region.inspector().unwrap();
    let observation = inspector.observe().unwrap();
    assert!(observation.this_boot);
    assert_eq!(observation.reset_number, 2);
    assert!(observation.reset_age.unwrap() < Duration::from_secs(60));
    assert_eq!(gauge(&observation, "running", &[("engine", "0")]), None);
    assert_eq!(gauge(&observation, "temperature", &[]), None);
    assert_eq!(totals_of(&mut inspector), [135, 12, 12400]);

    // Taking over settles the half-done drain: what came after the swap is on top of the intent.
    let mut primary = region.primary().unwrap();
    assert_eq!(inspector.observe().unwrap().interrupted_drains, 4);
    let interval = primary.drain();
    assert!(interval.elapsed() < Duration::from_secs(60), "not since another boot's drain");
    assert_eq!(interval.delta("requests"), 5 + 4 + 2);
    assert_eq!(interval.delta("sent"), 345);
    assert_eq!(interval.number(), 10);
    let id = |status| {
        let labels = [("model", "m \"1\""), ("status", status)];
        sample::schema().find("requests", &labels).unwrap()
    };
    let totals = inspector.totals();
    assert_eq!((totals.of(id("ok")), totals.of(id("error"))), (105 + 34, 7 + 5));
}

//! Deaths in the middle of a claim, a publication, the creation of a region and its removal.

use super::{Place, die_at, folder, path_in, schema, steps_of};
use crate::inspector::Observation;
use crate::{Inspector, Region, Server, SlotState};

/// Sets and publishes everything a server has, with this number in it.
fn describe(server: &Server, n: u64) {
    server.gauge::<i64>("own").expect("a gauge").set(n as i64);
    server.gauge::<u64>("kept").expect("a gauge").set(n);
    for (name, labels, fields) in
        [("load", &[][..], ["a", "b"]), ("engine", &[("engine", "0")][..], ["x", "y"])]
    {
        let mut snapshot = server.snapshot(name, labels).expect("a snapshot");
        for field in fields {
            let field = snapshot.field::<u64>(field).expect("a field");
            snapshot.set(field, n);
        }
        snapshot.publish();
    }
}

fn observe(inspector: &mut Inspector) -> Observation {
    inspector.observe().expect("an observation")
}

const GAUGES: [&str; 6] = ["own", "a", "b", "kept", "x", "y"];

fn gauges(observation: &Observation) -> [Option<f64>; 6] {
    GAUGES.map(|name| observation.gauge(name))
}

/// Whoever dies in a claim owns nothing, shows nothing of the owner before it, and leaves the slot
/// to the next one.
#[test]
fn a_claim() {
    let place = Place::new();
    let mut inspector = place.inspector();
    describe(&place.region.claim(0).expect("a slot"), 9);
    let steps = steps_of("claim", &place.path());
    assert!(steps.len() >= 5, "{steps:?}");
    for (n, step) in steps.iter().enumerate() {
        let server = place.region.claim(0).expect("the slot of one who died");
        server.counter("first").expect("a counter").add(1);
        describe(&server, 9);
        let all = [Some(9.0); 6];
        assert_eq!(gauges(&observe(&mut inspector)), all, "{step}: of a living owner");
        let generation = observe(&mut inspector).owners[0].generation;
        assert_eq!(generation % 2, 0, "{step}: a claim that is done");
        drop(server);
        die_at("claim", &place.path(), n);
        let observation = observe(&mut inspector);
        let kept = [None, None, None, Some(9.0), Some(9.0), Some(9.0)];
        assert_eq!(gauges(&observation), kept, "{step}: own values go, the rest stays");
        assert_ne!(observation.states[0], SlotState::Alive, "{step}");
        assert_eq!(inspector.totals().get("first"), n as u64 + 1, "{step}");
    }
    let server = place.region.claim(0).expect("the slot of one who died");
    assert_eq!(gauges(&observe(&mut inspector))[..3], [None; 3], "nothing set by this owner yet");
    describe(&server, 1);
    assert_eq!(gauges(&observe(&mut inspector)), [Some(1.0); 6]);
}

/// A publication is seen whole or not at all, and one that was cut off is in nobody's way.
#[test]
fn a_publication() {
    for (action, fields) in [("publish", ["a", "b"]), ("publish shared", ["x", "y"])] {
        let place = Place::new();
        let mut inspector = place.inspector();
        let steps = steps_of(action, &place.path());
        assert_eq!(steps.len(), 2 + 2, "{steps:?}");
        for (n, step) in steps.iter().enumerate() {
            describe(&place.region.claim(1).expect("the slot of one who died"), 9);
            die_at(action, &place.path(), n);
            let observation = observe(&mut inspector);
            let seen = fields.map(|name| observation.gauge(name));
            // A claim clears the owner's own snapshot; a shared one stays until it is replaced,
            // and is absent while it is half replaced.
            let whole = action == "publish shared" && step == "publish: before sequence";
            assert_eq!(seen, [whole.then_some(9.0); 2], "{action}: {step}");
            let server = place.region.claim(1).expect("the slot of one who died");
            describe(&server, 5);
            let observation = observe(&mut inspector);
            assert_eq!(fields.map(|name| observation.gauge(name)), [Some(5.0); 2], "{step}");
        }
    }
}

/// Until it has its name there is nothing; from then on it is whole.
#[test]
fn a_creation() {
    let first = folder();
    let steps = steps_of("create", &path_in(&first));
    assert!(steps.len() >= 5, "{steps:?}");
    for (n, step) in steps.iter().enumerate() {
        let folder = folder();
        let path = path_in(&folder);
        die_at("create", &path, n);
        let found = std::fs::read_dir(folder.path()).expect("the folder").count();
        let named = step == "create: after name";
        assert_eq!(found, usize::from(named), "{step}: what is left behind");
        if named {
            let mut inspector = Inspector::open(&path).expect("a whole region");
            assert!(!observe(&mut inspector).attached, "its creator is dead");
        }
        let region = Region::open_or_create(&path, &schema(), 2).expect("the next one's region");
        region.claim(0).expect("a slot").counter("first").expect("a counter").add(1);
        let mut inspector = region.inspector().expect("an inspector");
        assert_eq!(inspector.totals().get("first"), 1);
        region.remove().expect("to be alone");
    }
}

/// The name is there with a whole region behind it, or it is free.
#[test]
fn a_removal() {
    let steps = {
        let place = Place::new();
        let path = place.path();
        drop(place.region);
        steps_of("remove", &path)
    };
    assert_eq!(steps.len(), 3, "{steps:?}");
    for (n, step) in steps.iter().enumerate() {
        let place = Place::new();
        let path = place.path();
        place.region.claim(0).expect("a slot").counter("first").expect("a counter").add(4);
        drop(place.region);
        die_at("remove", &path, n);
        let gone = step == "remove: after unlinking";
        assert_eq!(path.exists(), !gone, "{step}");
        let region = Region::open_or_create(&path, &schema(), 2).expect("a region");
        let mut inspector = region.inspector().expect("an inspector");
        assert_eq!(inspector.totals().get("first"), if gone { 0 } else { 4 }, "{step}");
        drop(region.claim(0).expect("a slot"));
        region.remove().expect("nobody else is attached");
    }
}

//! What a scrape costs: the Prometheus text of 64 servers with 20 series each.

use prometheus::{Encoder, IntCounterVec, Opts, Registry, TextEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use shmstats::Inspector;
use shmstats::prometheus::Format;

use crate::harness::{Case, sample};
use crate::report::{Goal, Row};
use crate::setting::{Setting, counters};
use crate::sweeps::{add_to_all, handles};

const SERVERS: u32 = 64;
const SERIES: usize = 20;

/// The cases.
pub(crate) fn scrape(setting: &Setting) -> Vec<Row> {
    let (region, servers) = setting.full_region("text", &counters(SERIES), SERVERS);
    add_to_all(&handles(&servers, SERIES));
    let mut inspector = Inspector::open(region.path()).expect("a region to look at");
    let registry = peer();
    let client = client_peer();
    let (mut ours, mut theirs, mut clients) = (Vec::new(), Vec::new(), String::new());

    let mut cases = [
        Case::new("prometheus: gather and encode", || {
            theirs.clear();
            TextEncoder::new().encode(&registry.gather(), &mut theirs).expect("memory");
        }),
        Case::new("prometheus-client: encode", || {
            clients.clear();
            prometheus_client::encoding::text::encode(&mut clients, &client).expect("memory");
        }),
        Case::new("Inspector::encode, 64 × 20", || {
            ours.clear();
            inspector.encode(Format::Text, &mut ours).expect("the kernel tells");
        }),
    ];
    let series = sample(&mut cases, setting.time);
    drop(cases);
    let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
    let [theirs_took, client_took, ours_took] = series.as_slice() else {
        unreachable!("as many as cases")
    };
    let group = "Prometheus text";
    let said = |text: &[u8]| format!("{} lines, {} kB", lines(text), text.len() / 1000);
    vec![
        Row::alone(group, theirs_took, Goal::None).note(said(&theirs)),
        Row::compare(group, client_took, &[theirs_took], Goal::None).note(said(clients.as_bytes())),
        Row::compare(group, ours_took, &[theirs_took], Goal::Ratio(0.25)).note(said(&ours)),
    ]
}

fn peer() -> Registry {
    let registry = Registry::new();
    for n in 0..SERIES {
        let options = Opts::new(format!("bench_c{n}_total"), "Counted by the bench");
        let family = IntCounterVec::new(options, &["server"]).expect("a valid name");
        registry.register(Box::new(family.clone())).expect("a new name");
        for server in 0..SERVERS {
            family.with_label_values(&[server.to_string()]).inc();
        }
    }
    registry
}

fn client_peer() -> prometheus_client::registry::Registry {
    let mut registry = prometheus_client::registry::Registry::default();
    for n in 0..SERIES {
        let family = Family::<Vec<(String, String)>, Counter>::default();
        registry.register(format!("bench_c{n}"), "Counted by the bench", family.clone());
        for server in 0..SERVERS {
            family.get_or_create(&vec![("server".to_string(), server.to_string())]).inc();
        }
    }
    registry
}

//! The same families through the `prometheus-client` crate.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::family::{Family, FamilyKind};
use super::{Exposition, Options};
use crate::inspector::Inspector;
use crate::value::Value;

/// Puts a region into a [`prometheus_client`] registry, so that a server serves it beside its own
/// metrics. One collector per registry: two would say the same families twice.
///
/// ```
/// use prometheus_client::registry::Registry;
/// use shmstats::prometheus::{Options, RegionCollector};
/// use shmstats::{Region, Schema};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let schema = Schema::builder("shop").counter("orders").build()?;
/// let region = Region::private(&schema, 4);
/// let server = region.claim(0)?;
/// server.counter("orders")?.add(3);
///
/// let mut registry = Registry::default();
/// let collector = RegionCollector::new(region.inspector()?, Options::default());
/// registry.register_collector(Box::new(collector));
///
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry)?;
/// assert!(text.contains("shop_orders_total{server=\"0\"} 3\n"));
/// # Ok(())
/// # }
/// ```
///
/// Where the region cannot be read at a scrape, `shmstats_regions_skipped` is 1 and all else is
/// left out. The creation time of counters, which that crate cannot say, is in
/// [`Inspector::encode`] only.
#[derive(Debug)]
pub struct RegionCollector {
    /// The lock is this process's own, and only scrapes take it.
    inspector: Mutex<Inspector>,
    options: Options,
}

impl RegionCollector {
    /// A collector of the region that `inspector` looks at.
    #[must_use]
    pub fn new(inspector: Inspector, options: Options) -> Self {
        RegionCollector { inspector: Mutex::new(inspector), options }
    }
}

impl Collector for RegionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut exposition = Exposition::new(self.options);
        {
            let mut inspector = self.inspector.lock().unwrap_or_else(PoisonError::into_inner);
            if exposition.add(&mut inspector, None).is_err() {
                exposition.skip_region();
            }
        }
        exposition.complete();
        exposition.families.iter().try_for_each(|family| one(&mut encoder, family))
    }
}

fn one(encoder: &mut DescriptorEncoder<'_>, family: &Family) -> fmt::Result {
    let kind = match family.kind {
        FamilyKind::Counter => MetricType::Counter,
        FamilyKind::Gauge => MetricType::Gauge,
    };
    // The encoder puts the unit behind the name itself.
    let bare = family.name.strip_suffix(&format!("_{}", family.unit));
    let unit = bare.map(|_| Unit::Other(family.unit.clone()));
    // One of that crate's formats does not escape line ends.
    let help = family.help.replace('\n', " ");
    let name = bare.unwrap_or(&family.name);
    let mut metric = encoder.encode_descriptor(name, &help, unit.as_ref(), kind)?;
    for (group, sample) in family.groups.iter().flat_map(|g| g.samples.iter().map(move |s| (g, s)))
    {
        let mut labels = group.labels.clone();
        labels.extend(sample.server.map(|slot| ("server".into(), slot.to_string())));
        labels.extend(group.shm_region.iter().map(|name| ("shm_region".into(), name.clone())));
        let mut metric = metric.encode_family(&labels)?;
        match (family.kind, sample.value) {
            (FamilyKind::Counter, Value::U64(n)) => {
                metric.encode_counter::<NoLabelSet, u64, f64>(&n, None)?;
            }
            (FamilyKind::Counter, other) => {
                metric.encode_counter::<NoLabelSet, f64, f64>(&other.as_f64(), None)?;
            }
            (FamilyKind::Gauge, Value::U64(n)) => metric.encode_gauge(&n)?,
            (FamilyKind::Gauge, Value::I64(n)) => metric.encode_gauge(&n)?,
            (FamilyKind::Gauge, Value::F64(x)) => metric.encode_gauge(&x)?,
        }
    }
    Ok(())
}

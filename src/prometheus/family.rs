//! Families of samples, and how those of several regions are merged. Pure.

use std::collections::{HashMap, HashSet};

use crate::schema::with_unit;
use crate::value::Value;

/// Label keys and values.
pub(super) type Labels = Vec<(String, String)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyKind {
    Counter,
    Gauge,
}

/// Samples of one name.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// Without `_total`, with the unit.
    pub(super) name: String,
    /// Empty, or what the name ends with.
    pub(super) unit: String,
    pub(super) help: String,
    pub(super) kind: FamilyKind,
    pub(super) groups: Vec<Group>,
}

/// Samples that differ in nothing but their label `server`: said once for all of them, since there
/// may be thousands. All have one, or there is a single sample that has none.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// The labels before `server`.
    pub(super) labels: Labels,
    /// The label behind it.
    pub(super) shm_region: Option<String>,
    /// For a counter: when it was 0, in seconds since the Unix epoch.
    pub(super) created: Option<f64>,
    pub(super) samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) server: Option<usize>,
    pub(super) value: Value,
}

/// All families of a scrape, in the order they were first seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Families {
    list: Vec<Family>,
    by_name: HashMap<String, usize>,
    /// By family and sorted labels: which of the family's groups have them.
    seen: HashMap<(usize, Labels), Vec<usize>>,
    samples: usize,
    /// By region and name.
    skipped: HashSet<(usize, String)>,
    regions: usize,
}

/// Endings that belong to the text formats. A name can get one by its unit.
const RESERVED: [&str; 6] = ["_total", "_created", "_bucket", "_sum", "_count", "_info"];

impl Families {
    /// A number for the next region.
    pub(super) fn next_region(&mut self) -> usize {
        self.regions += 1;
        self.regions
    }

    /// The family of this name to add samples to; none if there is one of another kind, or the
    /// name cannot be had.
    pub(super) fn family(&mut self, region: usize, head: Family) -> Option<usize> {
        let taken = self.by_name.get(&head.name).copied();
        let fits = match taken {
            Some(at) => self.list[at].kind == head.kind,
            None => !RESERVED.iter().any(|ending| head.name.ends_with(ending)),
        };
        if !fits {
            self.skip(region, &head.name);
            return None;
        }
        Some(taken.unwrap_or_else(|| {
            self.by_name.insert(head.name.clone(), self.list.len());
            self.list.push(head);
            self.list.len() - 1
        }))
    }

    /// Adds samples, but for those of the same labels as one that is there. A group has at most one
    /// sample of each server.
    pub(super) fn add(&mut self, region: usize, family: usize, mut group: Group) {
        let mut key = group.labels.clone();
        key.extend(group.shm_region.iter().map(|name| ("shm_region".into(), name.clone())));
        key.sort();
        let seen = self.seen.entry((family, key)).or_default();
        let groups = &mut self.list[family].groups;
        let offered = group.samples.len();
        for other in seen.iter().map(|at| &groups[*at]) {
            let taken = |server| other.samples.iter().any(|sample| sample.server == server);
            group.samples.retain(|sample| !taken(sample.server));
        }
        self.samples += group.samples.len();
        let left_out = group.samples.len() < offered;
        if !group.samples.is_empty() {
            seen.push(groups.len());
            groups.push(group);
        }
        if left_out {
            let name = self.list[family].name.clone();
            self.skip(region, &name);
        }
    }

    fn skip(&mut self, region: usize, name: &str) {
        self.skipped.insert((region, name.into()));
    }

    /// How many families of how many regions were left out, wholly or in part.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped.len() as u64
    }

    pub(super) fn samples(&self) -> usize {
        self.samples
    }

    /// Adds a gauge of the exposition itself.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        let head = Family::new(FamilyKind::Gauge, name, "", help);
        if let Some(family) = self.family(usize::MAX, head) {
            let samples = vec![Sample { server: None, value: Value::U64(value) }];
            self.add(usize::MAX, family, Group { samples, ..Group::default() });
        }
    }

    /// Those that have samples.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Family> {
        self.list.iter().filter(|family| !family.groups.is_empty())
    }
}

impl Family {
    /// An empty one; the unit is put behind the name unless it is there.
    pub(super) fn new(kind: FamilyKind, name: &str, unit: &str, help: &str) -> Self {
        Family {
            name: with_unit(name, unit),
            unit: unit.into(),
            // The formats' linters want one, and an empty one tells nobody anything.
            help: if help.is_empty() { "Not described by its schema".into() } else { help.into() },
            kind,
            groups: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(label: &str, servers: &[usize]) -> Group {
        let labels = vec![("k".into(), label.into())];
        let sample = |server: &usize| Sample { server: Some(*server), value: Value::U64(1) };
        Group { labels, samples: servers.iter().map(sample).collect(), ..Group::default() }
    }

    #[test]
    fn a_unit_is_said_once() {
        let name = |name, unit| Family::new(FamilyKind::Gauge, name, unit, "").name;
        assert_eq!(name("a_memory", "bytes"), "a_memory_bytes");
        assert_eq!(name("a_bytes", "bytes"), "a_bytes");
        assert_eq!(name("a_kilobytes", "bytes"), "a_kilobytes_bytes");
        assert_eq!(name("a_b", ""), "a_b");
    }

    #[test]
    fn families_merge_and_conflicts_are_counted_once_per_region() {
        let mut families = Families::default();
        let head = |kind| Family::new(kind, "n_x", "", "");
        let first = families.family(0, head(FamilyKind::Counter)).unwrap();
        families.add(0, first, group("a", &[0, 1]));
        assert_eq!(families.family(1, head(FamilyKind::Counter)), Some(first));
        families.add(1, first, group("b", &[1]));
        assert_eq!(families.skipped(), 0);
        assert_eq!(families.family(2, head(FamilyKind::Gauge)), None);
        families.add(3, first, group("a", &[1, 2]));
        families.add(3, first, group("b", &[1]));
        assert_eq!(families.skipped(), 2);
        let groups = families.iter().flat_map(|family| &family.groups);
        let servers: Vec<_> = groups.flat_map(|g| g.samples.iter().map(|s| s.server)).collect();
        assert_eq!(servers, [Some(0), Some(1), Some(1), Some(2)]);
        assert_eq!(families.samples(), 4);
    }

    #[test]
    fn a_name_that_the_format_keeps_for_itself_is_skipped() {
        let mut families = Families::default();
        assert_eq!(families.family(0, Family::new(FamilyKind::Gauge, "n_x", "total", "")), None);
        assert_eq!(families.skipped(), 1);
    }
}

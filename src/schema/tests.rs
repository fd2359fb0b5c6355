//! What a schema may be, against the rules written down a second time.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::names::{MAX_HELP, MAX_LABEL_VALUE, MAX_LABELS, MAX_NAME};
use super::*;

const ENDINGS: [&str; 6] = ["_total", "_created", "_bucket", "_sum", "_count", "_info"];

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    let first = chars.next();
    text.len() <= MAX_NAME
        && matches!(first, Some('a'..='z' | 'A'..='Z' | '_'))
        && chars.all(|c| matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '_'))
}

fn is_record_name(text: &str) -> bool {
    is_name(text) && !ENDINGS.iter().any(|ending| text.ends_with(ending))
}

fn is_unit(text: &str) -> bool {
    text.is_empty() || is_record_name(text) && !ENDINGS.iter().any(|ending| text == &ending[1..])
}

fn is_label_key(text: &str) -> bool {
    is_name(text)
        && !["server", "shm_region", "le", "quantile"].contains(&text)
        && !text.starts_with("__")
}

/// Asserts that the schema is refused, and that the message shows which part, the rule and what
/// was found.
#[track_caller]
fn assert_refused(builder: SchemaBuilder, part: &str) {
    let error = builder.build().expect_err("an invalid schema");
    let Error::InvalidSchema { what, expected, found } = &error else { panic!("{error:?}") };
    assert!(what.contains(part), "{what} does not name {part}");
    assert!(!expected.is_empty());
    let message = error.to_string();
    assert!(message.contains(what) && message.contains(expected), "{message}");
    assert!(message.contains(&format!("{found:?}")), "{message}");
    assert!(found.chars().count() <= 512, "what was found is shown short");
}

#[track_caller]
fn assert_is(valid: bool, builder: SchemaBuilder, part: &str) {
    if valid {
        builder.build().unwrap_or_else(|error| panic!("{error}"));
    } else {
        assert_refused(builder, part);
    }
}

/// Names, nearly names and anything else.
fn name() -> impl Strategy<Value = String> {
    let ending = prop::sample::select(
        ENDINGS.into_iter().chain(["", "_totals", "total", "sum", "_"]).collect::<Vec<_>>(),
    );
    prop_oneof![
        "[a-zA-Z_][a-zA-Z0-9_]{0,8}",
        ("[a-z_]{0,3}", ending).prop_map(|(name, ending)| format!("{name}{ending}")),
        "[0-9][a-z]{0,3}",
        "[a-zé:\\-. ]{0,4}",
        "[a-z]{126,130}",
        prop::sample::select(vec!["server", "shm_region", "le", "quantile", "__", "__x", "_x"])
            .prop_map(String::from),
        any::<String>(),
    ]
}

fn label_value() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-z\"\\\\]{0,5}", "x{254,258}", "[a-z]{0,2}\n"]
}

proptest! {
    #[test]
    fn names_keep_the_rules(text in name()) {
        let with = |def: CounterDef| Schema::builder("p").counter(def);
        assert_is(is_name(&text), Schema::builder(&text).counter("c"), "namespace");
        assert_is(is_record_name(&text), with(CounterDef::new(&text)), "record name");
        assert_is(is_unit(&text), with(CounterDef::new("c").unit(&text)), "unit");
        assert_is(is_label_key(&text), with(CounterDef::new("c").label(&text, "v")), "label of c");
        let snapshot = SnapshotDef::new(&text).gauge(GaugeDef::u64("g"));
        assert_is(is_name(&text), Schema::builder("p").snapshot(snapshot), "snapshot name");
    }

    #[test]
    fn texts_keep_the_rules(text in label_value()) {
        let control = text.chars().any(char::is_control);
        let value = Schema::builder("p").counter(CounterDef::new("c").label("k", &text));
        let fits = (1..=MAX_LABEL_VALUE).contains(&text.len());
        assert_is(!control && fits, value, "value of label k of c");
        let plain = !text.replace('\n', "").chars().any(char::is_control);
        let help = Schema::builder("p").counter(CounterDef::new("c").help(&text));
        assert_is(plain && text.len() <= MAX_HELP, help, "help of c");
    }

    /// Records of one name must differ in their labels, as sets.
    #[test]
    fn each_name_and_label_set_stands_once(
        sets in vec((0..2u8, vec(("[ab]", "[xy]"), 0..3)), 1..5),
    ) {
        let mut seen = HashSet::new();
        let mut valid = true;
        let mut builder = Schema::builder("p");
        for (name, labels) in sets {
            let keys: HashSet<_> = labels.iter().map(|(key, _)| key.clone()).collect();
            let mut sorted = labels.clone();
            sorted.sort();
            valid &= keys.len() == labels.len() && seen.insert((name, sorted));
            let def = CounterDef::new(format!("c{name}"));
            builder = builder.counter(labels.iter().fold(def, |def, (k, v)| def.label(k, v)));
        }
        assert_is(valid, builder, "");
    }

    #[test]
    fn a_family_is_every_combination(a in 1..5usize, b in 1..5usize) {
        let values = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        let def = CounterDef::new("c").label("fixed", "x").family("a", values(a)).family("b", values(b));
        let schema = Schema::builder("p").counter(def).build().unwrap();
        prop_assert_eq!(schema.records().len(), a * b);
        for (i, j) in (0..a).flat_map(|i| (0..b).map(move |j| (i, j))) {
            let (i, j) = (i.to_string(), j.to_string());
            // In any order.
            let labels = [("b", j.as_str()), ("fixed", "x"), ("a", i.as_str())];
            prop_assert!(schema.find("c", &labels).is_some());
        }
        prop_assert!(schema.find("c", &[("fixed", "x")]).is_none());
    }
}

#[test]
fn limits_hold_exactly() {
    let counters = |n: usize| {
        (0..n).fold(Schema::builder("p"), |builder, i| builder.counter(format!("c{i}").as_str()))
    };
    assert_refused(Schema::builder("p"), "number of records");
    counters(MAX_RECORDS).build().unwrap();
    assert_refused(counters(MAX_RECORDS + 1), "number of records");

    let fields = |n: usize| {
        let gauge = |i| GaugeDef::u64(format!("g{i}"));
        let def = (0..n).fold(SnapshotDef::new("s"), |def, i| def.gauge(gauge(i)));
        Schema::builder("p").counter("c").snapshot(def)
    };
    assert_refused(fields(0), "number of gauges in snapshot s");
    fields(1).build().unwrap();
    fields(MAX_FIELDS).build().unwrap();
    assert_refused(fields(MAX_FIELDS + 1), "number of gauges in snapshot s");

    let labels = |n: usize| {
        let def = CounterDef::new("c");
        Schema::builder("p").counter((0..n).fold(def, |def, i| def.label(format!("k{i}"), "v")))
    };
    labels(MAX_LABELS).build().unwrap();
    assert_refused(labels(MAX_LABELS + 1), "labels of c");
}

/// A snapshot is found by its name and labels; its gauges carry them too.
#[test]
fn snapshots_stand_once() {
    let snapshot = |engine: &str, gauge: &str| {
        SnapshotDef::new("s").label("engine", engine).gauge(GaugeDef::u64(gauge))
    };
    let with = |a, b| Schema::builder("p").snapshot(a).snapshot(b);
    with(snapshot("0", "g"), snapshot("1", "g")).build().unwrap();
    assert_refused(with(snapshot("0", "g"), snapshot("0", "h")), "snapshot");
    let twice = snapshot("0", "g").label("engine", "1");
    assert_refused(Schema::builder("p").snapshot(twice), "labels of g");
    let inside = SnapshotDef::new("s").label("k", "a").gauge(GaugeDef::u64("g").label("k", "b"));
    assert_refused(Schema::builder("p").snapshot(inside), "labels of g");
}

#[test]
fn a_family_has_one_shape() {
    let first = || GaugeDef::f64("g").label("k", "0");
    let with = |second: GaugeDef| Schema::builder("p").gauge(first()).gauge(second.label("k", "1"));
    with(GaugeDef::f64("g").help("may differ")).build().unwrap();
    assert_refused(with(GaugeDef::u64("g")), "family g");
    assert_refused(with(GaugeDef::f64("g").mean()), "family g");
    assert_refused(with(GaugeDef::f64("g").unit("bytes")), "family g");
    assert_refused(with(GaugeDef::f64("g").lifetime(Lifetime::Region)), "family g");
    let counter = CounterDef::new("g").label("k", "2");
    assert_refused(Schema::builder("p").gauge(first()).counter(counter.clone()), "family g");
    let counters = Schema::builder("p").counter(counter.clone());
    assert_refused(counters.counter(counter.single_writer().label("l", "x")), "family g");
    let shared = SnapshotDef::new("s").shared().gauge(GaugeDef::f64("g"));
    assert_refused(Schema::builder("p").gauge(first()).snapshot(shared), "family g");
}

/// Only a file can say so; the builder cannot.
#[test]
fn a_lone_gauge_cannot_be_shared() {
    let schema = Schema::builder("p").gauge(GaugeDef::u64("g")).build().unwrap();
    let mut records = schema.records().to_vec();
    records[0].scope = Scope::Shared;
    let error = Schema::new("p".into(), records, Vec::new()).unwrap_err();
    assert!(error.to_string().contains("scope of g"), "{error}");
}

#[test]
fn a_difference_names_what_differs() {
    let base = || Schema::builder("p").counter("a").gauge(GaugeDef::u64("g"));
    let schema = base().build().unwrap();
    assert_eq!(schema.difference(&base().build().unwrap()), None);
    let differs = |other: SchemaBuilder, part: &str| {
        let other = other.build().unwrap();
        let there = schema.difference(&other).expect("a difference");
        let back = other.difference(&schema).expect("a difference");
        assert!(there.contains(part), "{there}");
        assert!(back.contains(part), "{back}");
    };
    differs(base().counter("b"), "record b");
    differs(Schema::builder("q").counter("a").gauge(GaugeDef::u64("g")), "namespace");
    differs(Schema::builder("p").counter("a").gauge(GaugeDef::i64("g")), "record 1");
    differs(Schema::builder("p").gauge(GaugeDef::u64("g")).counter("a"), "record 0");
    let snapshot = |name| base().snapshot(SnapshotDef::new(name).gauge(GaugeDef::u64("h")));
    let (one, other) = (snapshot("s").build().unwrap(), snapshot("t").build().unwrap());
    assert!(one.difference(&other).expect("a difference").contains("snapshots"));
}

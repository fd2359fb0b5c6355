//! Families as text, in both formats.
//!
//! A writer of our own and not `prometheus_client`'s, which has no `_created` and leaves line ends
//! in help texts as they are.

use std::io::{self, Write};

use super::Format;
use super::family::{Families, Family, FamilyKind, Labels};
use crate::value::Value;

pub(super) fn write(families: &Families, format: Format, out: &mut impl Write) -> io::Result<()> {
    let mut text = String::new();
    for family in families.iter() {
        text.clear();
        one(family, format, &mut text);
        out.write_all(text.as_bytes())?;
    }
    if format == Format::OpenMetrics {
        out.write_all(b"# EOF\n")?;
    }
    Ok(())
}

fn one(family: &Family, format: Format, text: &mut String) {
    let open_metrics = format == Format::OpenMetrics;
    let (kind, suffix) = match family.kind {
        FamilyKind::Counter => ("counter", "_total"),
        FamilyKind::Gauge => ("gauge", ""),
    };
    let name = &family.name;
    // OpenMetrics describes the family, the older format each sample's name.
    let described = if open_metrics { name.clone() } else { format!("{name}{suffix}") };
    let help = escaped(&family.help, open_metrics);
    text.push_str(&format!("# HELP {described} {help}\n# TYPE {described} {kind}\n"));
    if open_metrics && !family.unit.is_empty() {
        text.push_str(&format!("# UNIT {described} {}\n", family.unit));
    }
    for sample in &family.samples {
        let labels = labels(&sample.labels);
        text.push_str(&format!("{name}{suffix}{labels} {}\n", number(sample.value)));
        if let (true, Some(created)) = (open_metrics, sample.created) {
            text.push_str(&format!("{name}_created{labels} {created:.3}\n"));
        }
    }
}

/// `quotes`: whether quotation marks are escaped, too.
fn escaped(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

fn labels(labels: &Labels) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pair = |(key, value): &(String, String)| format!("{key}=\"{}\"", escaped(value, true));
    format!("{{{}}}", labels.iter().map(pair).collect::<Vec<_>>().join(","))
}

fn number(value: Value) -> String {
    match value {
        Value::U64(n) => n.to_string(),
        Value::I64(n) => n.to_string(),
        Value::F64(x) if x.is_nan() => "NaN".into(),
        Value::F64(x) if x.is_infinite() => if x > 0.0 { "+Inf" } else { "-Inf" }.into(),
        Value::F64(x) if x == 0.0 || (1e-6..1e15).contains(&x.abs()) => x.to_string(),
        Value::F64(x) => format!("{x:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::Sample;
    use super::*;

    fn families() -> Families {
        let mut families = Families::default();
        let head = Family::new(FamilyKind::Counter, "n_sent", "bytes", "Sent \"now\"\nor \\ later");
        let sent = families.family(0, head).unwrap();
        let labels = vec![("path".into(), "a\"b\\c\nd".into()), ("server".into(), "0".into())];
        let sample = Sample { labels, value: Value::U64(u64::MAX), created: Some(1.5) };
        families.add(0, sent, sample);
        families.gauge("n_up", "", 1);
        families
    }

    fn text(format: Format) -> String {
        let mut out = Vec::new();
        write(&families(), format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn prometheus_text() {
        let expected = r#"# HELP n_sent_bytes_total Sent "now"\nor \\ later
# TYPE n_sent_bytes_total counter
n_sent_bytes_total{path="a\"b\\c\nd",server="0"} 18446744073709551615
# HELP n_up Not described by its schema
# TYPE n_up gauge
n_up 1
"#;
        assert_eq!(text(Format::Text), expected);
    }

    #[test]
    fn open_metrics_text() {
        let expected = r#"# HELP n_sent_bytes Sent \"now\"\nor \\ later
# TYPE n_sent_bytes counter
# UNIT n_sent_bytes bytes
n_sent_bytes_total{path="a\"b\\c\nd",server="0"} 18446744073709551615
n_sent_bytes_created{path="a\"b\\c\nd",server="0"} 1.500
# HELP n_up Not described by its schema
# TYPE n_up gauge
n_up 1
# EOF
"#;
        assert_eq!(text(Format::OpenMetrics), expected);
    }

    #[test]
    fn numbers_that_parsers_know() {
        let of = |x| number(Value::F64(x));
        assert_eq!(of(0.0), "0");
        assert_eq!(of(-12.5), "-12.5");
        assert_eq!(of(1e300), "1e300");
        assert_eq!(of(1e-9), "1e-9");
        assert_eq!(of(f64::NEG_INFINITY), "-Inf");
        assert_eq!(of(f64::INFINITY), "+Inf");
        assert_eq!(of(f64::NAN), "NaN");
        assert_eq!(number(Value::I64(-3)), "-3");
    }
}

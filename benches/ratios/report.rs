//! The table, and the same figures as JSON.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Series, Spread, ratio};
use crate::machine::{Machine, TwoCores};

/// What a figure is held against.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// The ratio, at most.
    Ratio(f64),
    /// The time in nanoseconds, at most.
    Time(f64),
    /// A fact that must hold, decided where it was found.
    Fact(bool),
    /// Shown for orientation.
    None,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    group: &'static str,
    case: String,
    /// Nanoseconds.
    time: Option<Spread>,
    against: String,
    ratio: Option<Spread>,
    goal: Goal,
    samples: usize,
    dropped: usize,
    two_cores: Option<TwoCores>,
    note: String,
}

impl Row {
    /// A case against the sum of others.
    pub(crate) fn compare(
        group: &'static str,
        case: &Series,
        others: &[&Series],
        goal: Goal,
    ) -> Self {
        let names: Vec<&str> = others.iter().map(|other| other.name.as_str()).collect();
        let (samples, dropped) = case.counts();
        Row {
            group,
            case: case.name.clone(),
            time: Some(case.time()),
            against: names.join(" + "),
            ratio: (!others.is_empty()).then(|| ratio(case, others)),
            goal,
            samples,
            dropped,
            two_cores: None,
            note: String::new(),
        }
    }

    /// A case alone.
    pub(crate) fn alone(group: &'static str, case: &Series, goal: Goal) -> Self {
        Row::compare(group, case, &[], goal)
    }

    /// Something that is not a time.
    pub(crate) fn fact(group: &'static str, case: &str, holds: bool, note: String) -> Self {
        Row {
            group,
            case: case.into(),
            time: None,
            against: String::new(),
            ratio: None,
            goal: Goal::Fact(holds),
            samples: 0,
            dropped: 0,
            two_cores: None,
            note,
        }
    }

    /// Says how the two cores stood to each other at the time.
    pub(crate) fn on_two_cores(mut self, two_cores: TwoCores) -> Self {
        self.two_cores = Some(two_cores);
        self
    }

    /// Adds a remark.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Whether the goal is met; nothing where there is none. A figure that could not be taken meets
    /// no goal.
    pub(crate) fn met(&self) -> Option<bool> {
        match self.goal {
            Goal::Ratio(most) => Some(self.ratio.is_some_and(|ratio| ratio.median <= most)),
            Goal::Time(most) => Some(self.time.is_some_and(|time| time.median <= most)),
            Goal::Fact(holds) => Some(holds),
            Goal::None => None,
        }
    }

    fn cells(&self) -> [String; 7] {
        let goal = match self.goal {
            Goal::Ratio(most) => format!("<= {most:.2}"),
            Goal::Time(most) => format!("<= {}", time(most)),
            Goal::Fact(_) => "holds".into(),
            Goal::None => String::new(),
        };
        let mut note = self.note.clone();
        if let Some(cores) = self.two_cores {
            let gap = if note.is_empty() { "" } else { "; " };
            let _ = write!(note, "{gap}line {:.0} ns, ALU {:.2}", cores.round_trip_ns, cores.alu);
        }
        if self.samples > 0 && self.dropped * 100 > self.samples {
            let gap = if note.is_empty() { "" } else { "; " };
            let percent = 100.0 * self.dropped as f64 / self.samples as f64;
            let _ = write!(note, "{gap}{percent:.0} % dropped");
        }
        [
            self.case.clone(),
            self.time.map_or(String::new(), |spread| time(spread.median)),
            self.ratio.map_or(String::new(), |spread| format!("{:.3}", spread.median)),
            self.against.clone(),
            goal,
            self.met().map_or("", |met| if met { "met" } else { "NOT MET" }).into(),
            note,
        ]
    }

    fn json(&self) -> Value {
        let spread =
            |s: Spread| json!({ "median": s.median, "quarter": s.low, "three_quarters": s.high });
        json!({
            "group": self.group,
            "case": self.case,
            "ns": self.time.map(spread),
            "against": self.against,
            "ratio": self.ratio.map(spread),
            "goal": match self.goal {
                Goal::Ratio(most) => json!({ "ratio": most }),
                Goal::Time(most) => json!({ "ns": most }),
                Goal::Fact(_) => json!("holds"),
                Goal::None => Value::Null,
            },
            "met": self.met(),
            "samples": self.samples,
            "dropped": self.dropped,
            "line_round_trip_ns": self.two_cores.map(|cores| cores.round_trip_ns),
            "alu_two_cores": self.two_cores.map(|cores| cores.alu),
            "note": self.note,
        })
    }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns.is_nan() => "no sample".into(),
        ns if ns < 10.0 => format!("{ns:.2} ns"),
        ns if ns < 1_000.0 => format!("{ns:.1} ns"),
        ns if ns < 1_000_000.0 => format!("{:.2} µs", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

/// How a cost grows with the number of slots.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    /// What is done.
    pub(crate) case: &'static str,
    /// Slots, and nanoseconds.
    pub(crate) points: Vec<(u32, f64)>,
}

/// Prints a table with one column per number of slots.
pub(crate) fn print_growth(growth: &[Growth]) {
    let Some(first) = growth.first() else { return };
    println!("\nHow cost grows: medians, with all slots claimed");
    print!("{:<28}", "slots");
    first.points.iter().for_each(|(slots, _)| print!("{slots:>12}"));
    println!();
    for line in growth {
        print!("{:<28}", line.case);
        line.points.iter().for_each(|(_, ns)| print!("{:>12}", time(*ns)));
        println!();
    }
}

/// Prints the table.
pub(crate) fn print(rows: &[Row]) {
    let head = ["case", "median", "ratio", "to", "goal", "", "note"].map(String::from);
    let cells: Vec<[String; 7]> = rows.iter().map(Row::cells).collect();
    let width = |column: usize| {
        let all = cells.iter().chain([&head]).map(|line| line[column].chars().count());
        all.max().unwrap_or(0)
    };
    let widths: [usize; 7] = std::array::from_fn(width);
    let print_line = |line: &[String; 7]| {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            let _ = match column {
                1 | 2 => write!(text, "{cell:>width$}  "),
                _ => write!(text, "{cell:<width$}  "),
            };
        }
        println!("{}", text.trim_end());
    };
    print_line(&head);
    let mut group = "";
    for (row, line) in rows.iter().zip(&cells) {
        if row.group != group {
            group = row.group;
            println!("-- {group}");
        }
        print_line(line);
    }
    let count = |met: bool| rows.iter().filter(|row| row.met() == Some(met)).count();
    println!("\n{} goals met, {} not met", count(true), count(false));
}

/// Writes everything to a file.
pub(crate) fn write_json(
    path: &Path,
    machine: &Machine,
    quick: bool,
    rows: &[Row],
    growth: &[Growth],
) -> io::Result<()> {
    let rows: Vec<Value> = rows.iter().map(Row::json).collect();
    let growth: Vec<Value> = growth
        .iter()
        .map(|line| {
            let (slots, ns): (Vec<u32>, Vec<f64>) = line.points.iter().copied().unzip();
            json!({ "case": line.case, "slots": slots, "ns": ns })
        })
        .collect();
    let all = json!({
        "machine": machine.json(),
        "quick": quick,
        "rows": rows,
        "growth": growth,
    });
    std::fs::write(path, format!("{all:#}\n"))
}

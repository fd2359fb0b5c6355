//! The view on ratatui's test backend, fed from real regions at made-up times.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use shmstats::schema::{CounterDef, GaugeDef, SnapshotDef};
use shmstats::{Region, Schema, Server};

use super::draw;
use super::model::Model;
use super::ui::{Done, Ui};
use crate::find::Opened;
use crate::report::Report;

fn schema() -> Schema {
    let engine = |n: u32| {
        SnapshotDef::new("engine")
            .shared()
            .label("engine", n.to_string())
            .gauge(GaugeDef::u64("running"))
            .gauge(GaugeDef::f64("kv_usage").mean())
    };
    Schema::builder("shop")
        .counter("orders")
        .counter(CounterDef::new("answers").family("status", ["2xx", "5xx"]))
        .counter("a_name_that_is_far_too_long_for_a_column")
        .counter("refunds")
        .gauge(GaugeDef::i64("in_flight"))
        .snapshot(engine(0))
        .snapshot(engine(1))
        .build()
        .unwrap()
}

/// A view over a region of this process.
struct View {
    region: Region,
    servers: Vec<Server>,
    model: Model,
    ui: Ui,
    at: Duration,
}

impl View {
    fn new(servers: u32) -> Self {
        let region = Region::private(&schema(), servers);
        let servers = (0..servers).map(|i| region.claim(i).unwrap()).collect();
        let mut view = View {
            region,
            servers,
            model: Model::new("/dev/shm/shop-1.shmstats".into()),
            ui: Ui::new(false),
            at: Duration::ZERO,
        };
        view.read();
        view
    }

    fn read(&mut self) {
        let mut inspector = self.region.inspector().unwrap();
        let observation = inspector.observe().unwrap();
        self.model.feed(self.at, Report::new(&mut Opened { inspector, observation }));
    }

    /// Each server counts so many orders in a second.
    fn second(&mut self, orders: &[u64]) {
        for (server, orders) in self.servers.iter().zip(orders) {
            server.counter("orders").unwrap().add(*orders);
        }
        self.at += Duration::from_secs(1);
        self.read();
    }

    fn draw(&mut self, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw::view(frame, &self.model, &mut self.ui)).unwrap();
        let content = terminal.backend().buffer().content();
        let rows = content.chunks(usize::from(width));
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>())
            .map(|line| line.trim_end().to_string())
            .collect()
    }

    fn key(&mut self, code: KeyCode) -> Done {
        self.ui.key(KeyEvent::new(code, KeyModifiers::NONE), &self.model)
    }

    /// The cells of a slot's row at 80×24.
    fn row(&mut self, slot: usize) -> Vec<String> {
        let lines = self.draw(80, 24);
        let cells = |line: &String| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        let is = |cells: &Vec<String>| cells.first().is_some_and(|c| *c == slot.to_string());
        let bare: Vec<String> = lines.iter().map(|line| line.replacen('!', " ", 1)).collect();
        bare.iter().map(cells).find(is).unwrap_or_else(|| panic!("{lines:#?}"))
    }
}

#[test]
fn all_fits_at_80_by_24() {
    let mut view = View::new(4);
    let mut engine = view.servers[2].snapshot("engine", &[("engine", "1")]).unwrap();
    let (running, usage) = (engine.field("running").unwrap(), engine.field("kv_usage").unwrap());
    engine.set(running, 12_u64);
    engine.set(usage, 0.653);
    engine.publish();
    for _ in 0..12 {
        view.second(&[1000, 1000, 2000, 3]);
    }
    let lines = view.draw(80, 24);
    let all = lines.join("\n");
    assert_eq!(lines.len(), 24);
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{all}");
    assert!(
        lines[0].starts_with("shmstats shop-1.shmstats  4/4 servers  created 0.0 s ago"),
        "{all}"
    );
    assert!(lines[1].starts_with("no primary"), "{all}");
    assert!(lines[2].starts_with("orders 4003/s, peak 4003/s"), "{all}");
    assert!(lines[6].contains("SLOT") && lines[6].contains("orders/s"), "{all}");
    assert!(lines[7].starts_with("    0   0 ") && lines[7].contains("alive"), "{all}");
    assert!(lines[10].starts_with("!   3   3 ") && lines[10].contains("starved"), "{all}");
    assert!(all.contains("rates over 10 s, sorted by slot"), "{all}");
    assert!(all.contains("SHARED"), "{all}");
    let engine = lines.iter().find(|line| line.starts_with("engine{engine=\"1\"}")).unwrap();
    let cells: Vec<_> = engine.split_whitespace().collect();
    assert_eq!(&cells[3..], ["2", "12", "0.653"], "seen by slot 2: {all}");
    assert!(lines.iter().any(|l| l.starts_with("engine{engine=\"0\"}") && l.contains("never")));
    assert!(lines[23].contains("q quit"), "{all}");
}

#[test]
fn any_size_can_be_drawn() {
    let mut view = View::new(40);
    view.second(&[10; 40]);
    for (width, height) in [(80, 24), (200, 60), (40, 10), (20, 5), (3, 3), (1, 1), (500, 4)] {
        for code in [KeyCode::Char('c'), KeyCode::Esc, KeyCode::Char('?'), KeyCode::Enter] {
            view.key(code);
            let lines = view.draw(width, height);
            assert!(lines.iter().all(|line| line.chars().count() <= usize::from(width)));
        }
    }
    // Scrolled further than there is anything.
    for _ in 0..100 {
        view.key(KeyCode::PageDown);
        view.key(KeyCode::Right);
    }
    assert!(view.draw(80, 24).join("\n").contains(" 39 "), "the last row is seen");
    view.key(KeyCode::Home);
    assert!(view.draw(80, 24).join("\n").contains("orders/s"));
}

#[test]
fn rates_are_over_the_window_that_was_picked() {
    let mut view = View::new(2);
    for n in 0..20 {
        view.second(&[if n < 19 { 100 } else { 1100 }, 100]);
    }
    // Ten seconds are the first window.
    assert_eq!(view.row(0)[4], "200");
    view.key(KeyCode::Char('w'));
    assert_eq!(view.row(0)[4], "150", "all there is of 100 seconds");
    view.key(KeyCode::Char('w'));
    assert_eq!(view.row(0)[4], "1100");
    let lines = view.draw(80, 24);
    let all: Vec<_> = lines.iter().filter(|line| line.contains("all servers, ")).collect();
    let first = |line: &String| {
        line.split(" s ").nth(1).unwrap().split_whitespace().next().unwrap().to_string()
    };
    assert_eq!(all.iter().map(|line| first(line)).collect::<Vec<_>>(), ["1200", "300", "250"]);
}

#[test]
fn another_region_of_the_name_has_no_past() {
    let mut view = View::new(2);
    view.second(&[5000, 5000]);
    view.model.lose("gone".into());
    let lines = view.draw(80, 24);
    assert!(lines[0].contains("gone"), "{lines:?}");
    assert!(lines[7].contains("alive"), "the last reading stays: {lines:?}");

    let old = std::mem::replace(&mut view.region, Region::private(&schema(), 2));
    view.servers = (0..2).map(|i| view.region.claim(i).unwrap()).collect();
    drop(old);
    view.model.begin();
    view.second(&[7, 7]);
    let row = view.row(0);
    assert_eq!(row[4], "-", "no rate yet, and none below zero: {row:?}");
    view.second(&[7, 7]);
    assert_eq!(view.row(0)[4], "7");
    assert!(!view.draw(80, 24)[0].contains("gone"));
}

#[test]
fn a_reset_shows_and_a_drain_does_not() {
    let mut view = View::new(1);
    view.second(&[10]);
    let mut primary = view.region.primary().unwrap();
    drop(primary.drain());
    view.second(&[10]);
    assert_eq!(view.row(0)[4], "10");
    assert!(!view.draw(80, 24)[1].contains("reset"));
    primary.reset();
    view.second(&[10]);
    assert_eq!(view.row(0)[4], "10");
    assert!(view.draw(80, 24)[1].contains("reset 0.0 s ago"));
    let line = view.draw(80, 24)[1].clone();
    assert!(line.starts_with(&format!("primary pid {}, drained", std::process::id())), "{line}");
}

#[test]
fn rows_are_sorted_and_columns_picked() {
    let mut view = View::new(3);
    view.servers[2].gauge::<i64>("in_flight").unwrap().set(9);
    view.second(&[10, 30, 20]);
    let order = |view: &mut View| {
        let lines = view.draw(120, 24);
        let slot =
            |line: &String| line.split_whitespace().next()?.trim_matches('!').parse::<u32>().ok();
        lines[7..10].iter().filter_map(slot).collect::<Vec<_>>()
    };
    assert_eq!(order(&mut view), [0, 1, 2]);
    view.key(KeyCode::Char('r'));
    assert_eq!(order(&mut view), [2, 1, 0]);
    view.key(KeyCode::Char('r'));
    view.key(KeyCode::Char('s'));
    view.key(KeyCode::Char('s'));
    assert_eq!(order(&mut view), [1, 2, 0], "the most orders first");
    assert!(view.draw(80, 24).join("\n").contains("sorted by orders"));

    // The first column is hidden.
    view.key(KeyCode::Char('c'));
    assert!(view.draw(80, 24).join("\n").contains("[x] orders"));
    view.key(KeyCode::Char(' '));
    assert!(view.draw(80, 24).join("\n").contains("[ ] orders"));
    view.key(KeyCode::Enter);
    let head = view.draw(120, 24)[6].clone();
    assert!(!head.contains("orders/s") && head.contains("answers/s"), "{head}");
    assert!(head.contains(" a_n_t_i_f_t_/s "), "{head}");
    assert!(head.find("in_flight") < head.find("refunds/s"), "what has nothing comes last: {head}");
}

#[test]
fn keys_that_end_and_keys_that_pause() {
    let mut view = View::new(1);
    assert_eq!(view.key(KeyCode::Char('p')), Done::Stay);
    assert!(view.ui.is_paused());
    assert!(view.draw(80, 24)[0].ends_with("paused"));
    view.key(KeyCode::Char(' '));
    assert!(!view.ui.is_paused());
    view.key(KeyCode::Char('?'));
    assert!(view.draw(80, 24).join("\n").contains("any key ends it"));
    assert_eq!(view.key(KeyCode::Char('q')), Done::Stay, "it ends the help");
    assert_eq!(view.key(KeyCode::Char('q')), Done::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(view.ui.key(interrupt, &view.model), Done::Quit);
}

#[test]
fn servers_that_are_gone_stand_out() {
    let mut view = View::new(2);
    view.servers.pop();
    view.second(&[10]);
    let lines = view.draw(80, 24);
    assert!(lines[0].contains("1/2 servers"));
    assert!(lines[8].contains("released"), "{lines:#?}");
}

#[test]
fn numbers_that_only_a_hostile_file_has_break_nothing() {
    let mut view = View::new(3);
    // NaN, which no server can set: the value word of the lone gauge of slots 0 and 2.
    let hostile = |view: &mut View| {
        let mut inspector = view.region.inspector().unwrap();
        let observation = inspector.observe().unwrap();
        let mut report = Report::new(&mut Opened { inspector, observation });
        for (slot, value) in [(0, f64::NAN), (1, 1.0), (2, f64::INFINITY)] {
            let value = crate::report::Number(shmstats::Value::F64(value));
            report.gauges[0].by_slot.push(crate::report::ValueInSlot { slot, value });
        }
        for counter in &mut report.counters {
            counter.by_slot[0].total = if view.at.is_zero() { 0 } else { u64::MAX };
        }
        view.model.feed(view.at, report);
    };
    hostile(&mut view);
    view.at += Duration::from_secs(1);
    hostile(&mut view);
    for _ in 0..8 {
        view.key(KeyCode::Char('s'));
        view.draw(120, 24);
    }
    // Back again: no rate below zero.
    view.at += Duration::from_secs(1);
    view.read();
    assert!(!view.draw(120, 24).join("\n").contains(" -1"));
}

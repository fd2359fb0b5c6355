//! The view, drawn.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline};

use super::model::{Alarm, Model, RESET_SHOWN, WINDOWS};
use super::ui::{Mode, Ui};
use crate::report::{Report, Shared};
use crate::text::{abbreviate, age, printable, short};

/// Room for a column's name.
const NAME: usize = 14;
/// What is shown of a row before the columns.
const FIXED: usize = 35;

pub(super) fn view(frame: &mut Frame<'_>, model: &Model, ui: &mut Ui) {
    let shared = model.report.as_ref().map_or(0, |r| r.shared.len());
    let shared = if shared == 0 { 0 } else { shared.min(8) + 2 };
    let [title, health, spark, servers, shared_area, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(4),
        Constraint::Min(5),
        Constraint::Length(u16::try_from(shared).unwrap_or(0)),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(title_line(model, ui)), title);
    frame.render_widget(Paragraph::new(health_line(model, ui)), health);
    sparkline(frame, spark, model, ui);
    servers_table(frame, servers, model, ui);
    shared_table(frame, shared_area, model, ui);
    let text = " q quit  p pause  s sort  r reverse  w window  c columns  arrows scroll  ? help";
    frame.render_widget(Paragraph::new(text).style(faint(ui)), keys);
    match ui.mode {
        Mode::Main => {}
        Mode::Help => help(frame),
        Mode::Columns(cursor) => columns(frame, model, ui, cursor),
    }
}

fn style(ui: &Ui, colour: Color) -> Style {
    if ui.colours { Style::new().fg(colour) } else { Style::new() }
}

fn faint(ui: &Ui) -> Style {
    if ui.colours { Style::new().fg(Color::DarkGray) } else { Style::new() }
}

fn loud(ui: &Ui) -> Style {
    style(ui, Color::Red).add_modifier(Modifier::BOLD)
}

fn title_line<'a>(model: &Model, ui: &Ui) -> Line<'a> {
    let mut spans = vec![Span::styled("shmstats ", Style::new().add_modifier(Modifier::BOLD))];
    let name = model.path.rsplit('/').next().unwrap_or(&model.path);
    spans.push(Span::raw(printable(name)));
    if let Some(why) = &model.lost {
        spans.push(Span::styled(format!("  {}", printable(why)), loud(ui)));
        spans.push(Span::raw("  what follows is the last reading"));
    } else if let Some(report) = &model.report {
        let (servers, region) = (&report.servers, &report.region);
        let since =
            crate::ls::since(Duration::try_from_secs_f64(region.created_at).unwrap_or_default());
        let good = servers.alive >= servers.configured as usize;
        let alive = format!("  {}/{} servers", servers.alive, servers.configured);
        spans.push(Span::styled(alive, if good { style(ui, Color::Green) } else { loud(ui) }));
        if !region.live {
            spans.push(Span::styled("  dead: nobody is attached", loud(ui)));
        }
        spans.push(Span::raw(format!("  created {} ago", age(since))));
    }
    if ui.is_paused() {
        let style = style(ui, Color::Yellow).add_modifier(Modifier::REVERSED);
        spans.push(Span::raw("  "));
        spans.push(Span::styled(" paused ", style));
    }
    Line::from(spans)
}

fn health_line<'a>(model: &Model, ui: &Ui) -> Line<'a> {
    let Some(report) = &model.report else { return Line::default() };
    let (primary, health) = (&report.primary, &report.health);
    let drained = seconds(primary.last_drain_age_seconds);
    let mut spans = vec![match (primary.alive, primary.pid) {
        (true, pid) => Span::raw(format!(
            "primary pid {}, drained {}",
            pid.unwrap_or_default(),
            crate::text::ago(drained)
        )),
        (false, _) => Span::styled("no primary", loud(ui)),
    }];
    if let Some(since) = seconds(health.last_reset_age_seconds)
        .filter(|since| health.resets > 0 && *since < RESET_SHOWN)
    {
        let text = format!("  reset {} ago", age(since));
        spans.push(Span::styled(text, style(ui, Color::Yellow)));
    }
    for (n, what) in [
        (health.interrupted_drains, "interrupted drains"),
        (health.refused_servers, "refused servers"),
        (health.skipped_writes, "skipped writes"),
    ] {
        if n > 0 {
            spans.push(Span::styled(format!("  {n} {what}"), style(ui, Color::Yellow)));
        }
    }
    if !health.settled {
        spans.push(Span::styled("  totals not settled", loud(ui)));
    }
    Line::from(spans)
}

fn sparkline(frame: &mut Frame<'_>, area: Rect, model: &Model, ui: &Ui) {
    let Some(main) = model.main() else { return };
    let [head, bars] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let rate = model.rate(main, None, WINDOWS[0]).map_or("-".into(), short);
    let data = model.bars(usize::from(bars.width));
    let peak = data.iter().max().map_or("-".into(), |peak| short(*peak as f64));
    let text = format!("{} {rate}/s, peak {peak}/s", model.columns[main].name);
    frame.render_widget(Paragraph::new(text).style(style(ui, Color::Cyan)), head);
    frame.render_widget(Sparkline::default().data(&data).style(style(ui, Color::Cyan)), bars);
}

/// A text cut or filled to a width: to the right for numbers, else to the left.
fn fit(text: &str, width: usize, right: bool) -> String {
    let cut: String = if text.chars().count() > width {
        text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
    } else {
        text.into()
    };
    if right { format!("{cut:>width$}") } else { format!("{cut:<width$}") }
}

/// Which columns fit beside each other, with their heads, from `left` on.
fn fitting(model: &Model, columns: &[usize], left: usize, room: usize) -> Vec<(usize, String)> {
    let mut used = 0;
    let head = |column: &usize| (*column, title(model, *column));
    let fits = |(_, title): &(usize, String)| {
        used += title.len() + 1;
        used <= room
    };
    columns[left.min(columns.len())..].iter().map(head).take_while(fits).collect()
}

/// A column's head, as wide as the column.
fn title(model: &Model, column: usize) -> String {
    let column = &model.columns[column];
    let per_second = if column.is_counter { "/s" } else { "" };
    let name = abbreviate(&column.name, NAME - per_second.len());
    format!("{:>8}", name + per_second)
}

fn servers_table(frame: &mut Frame<'_>, area: Rect, model: &Model, ui: &mut Ui) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let columns = ui.columns(model);
    ui.left = ui.left.min(columns.len().saturating_sub(1));
    let shown = fitting(model, &columns, ui.left, width.saturating_sub(FIXED));
    let rows = ui.rows(model);
    // The head, a rule, and a line for each window stay.
    let room = height.saturating_sub(2 + WINDOWS.len());
    ui.top = ui.top.min(rows.len().saturating_sub(room));

    let mut head = format!("{:>5} {:>3} {:>7}  {:<15} ", "SLOT", "SRV", "PID", "STATE");
    for (_, title) in &shown {
        head += title;
        head += " ";
    }
    let mut lines = vec![Line::styled(head, Style::new().add_modifier(Modifier::REVERSED))];
    let slots: Vec<_> = model.slots().collect();
    for row in rows.iter().skip(ui.top).take(room) {
        let slot = slots[*row];
        let (state, alarm) = model.state(slot);
        let mark = match alarm {
            Alarm::None => style(ui, Color::Green),
            Alarm::Faint => faint(ui),
            Alarm::Loud => loud(ui),
        };
        let number = |n: Option<u64>| n.map_or("-".into(), |n| n.to_string());
        let flag = if alarm == Alarm::Loud { "!" } else { " " };
        let mut spans = vec![
            Span::styled(format!("{flag}{:>4}", slot.slot), mark),
            Span::raw(format!(" {:>3} {:>7}  ", number(slot.server_index), number(slot.pid))),
            Span::styled(fit(&state, 15, false), mark),
            Span::raw(" "),
        ];
        for (column, title) in &shown {
            let cell = model.cell(*column, slot.slot, ui.window()).map_or("-".into(), short);
            spans.push(Span::raw(fit(&cell, title.len(), true) + " "));
        }
        lines.push(Line::from(spans));
    }
    let window = format!("rates over {} s, sorted by {}", ui.window().as_secs(), ui.sorted_by());
    let hidden =
        [(rows.len().saturating_sub(room), "rows"), (columns.len() - shown.len(), "columns")];
    let hidden = hidden.iter().filter(|(count, _)| *count > 0);
    let more: String = hidden.map(|(count, what)| format!(", {count} more {what}")).collect();
    lines.push(Line::styled(fit(&format!("{window}{more}"), width, false), faint(ui)));
    for window in WINDOWS {
        let name = format!("all servers, {} s", window.as_secs());
        let mut text = fit(&name, FIXED - 1, true) + " ";
        for (column, title) in &shown {
            let value = if model.columns[*column].is_counter {
                model.rate(*column, None, window)
            } else {
                model.gauge_of_all(*column).filter(|_| window == WINDOWS[0])
            };
            text += &fit(&value.map_or("-".into(), short), title.len(), true);
            text += " ";
        }
        lines.push(Line::styled(text, Style::new().add_modifier(Modifier::BOLD)));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn seconds(s: Option<f64>) -> Option<Duration> {
    s.and_then(|s| Duration::try_from_secs_f64(s).ok())
}

fn shared_table(frame: &mut Frame<'_>, area: Rect, model: &Model, ui: &Ui) {
    let Some(report) = &model.report else { return };
    if report.shared.is_empty() {
        return;
    }
    let names = shared_columns(report);
    let mut head = format!("{:<19} {:>9} {:>4} ", "SHARED", "SEEN", "SLOT");
    for name in &names {
        head += &format!("{:>8} ", abbreviate(name, NAME));
    }
    let mut lines =
        vec![Line::default(), Line::styled(head, Style::new().add_modifier(Modifier::REVERSED))];
    lines.extend(report.shared.iter().map(|shared| shared_row(shared, &names, ui)));
    frame.render_widget(Paragraph::new(lines), area);
}

/// The gauges of shared things that have a value anywhere.
fn shared_columns(report: &Report) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let values = report.shared.iter().flat_map(|shared| &shared.values);
    for value in values.filter(|value| value.value.is_some()) {
        if !names.contains(&value.name.as_str()) {
            names.push(&value.name);
        }
    }
    names
}

fn shared_row<'a>(shared: &Shared, names: &[&str], ui: &Ui) -> Line<'a> {
    let labels: Vec<_> = shared.labels.iter().collect();
    let name = format!("{}{}", shared.snapshot, shmstats::schema::labels_text(&labels));
    let seen = seconds(shared.age_seconds);
    let stale = seen.is_some_and(|seen| seen >= crate::inspect::SILENT);
    let mut text = format!(
        "{} {:>9} {:>4} ",
        fit(&printable(&name), 19, false),
        seen.map_or("never".into(), age),
        shared.slot.map_or("-".into(), |slot| slot.to_string()),
    );
    for name in names {
        let value = shared.values.iter().find(|v| v.name == **name).and_then(|v| v.value);
        let cell = value.map_or("-".into(), |value| short(value.0.as_f64()));
        text += &fit(&cell, name.len().clamp(8, NAME), true);
        text += " ";
    }
    Line::styled(text, if stale { style(ui, Color::Yellow) } else { Style::new() })
}

/// A box in the middle.
fn popup(frame: &mut Frame<'_>, title: &str, lines: Vec<Line<'_>>) {
    let widest = lines.iter().map(Line::width).max().unwrap_or(0);
    let (width, height) = (
        u16::try_from(widest + 4).unwrap_or(u16::MAX).min(frame.area().width),
        u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(frame.area().height),
    );
    let area = frame.area().centered(Constraint::Length(width), Constraint::Length(height));
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(format!(" {title} "));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn help(frame: &mut Frame<'_>) {
    let lines = [
        "q, Esc     quit",
        "p, space   pause and go on",
        "w          rates over 1, 10 or 100 seconds",
        "s          sort by slot, state, or the next column",
        "r          reverse the order",
        "c          pick columns",
        "arrows     scroll rows and columns; Home: back",
        "",
        "! marks servers that are dead, stopped, silent for",
        "30 s, or starved: they count less than a tenth of",
        "what the other living servers do, over 10 s.",
        "SHARED: the newest observation, and who saw it.",
    ];
    popup(frame, "help, any key ends it", lines.map(Line::raw).to_vec());
}

fn columns(frame: &mut Frame<'_>, model: &Model, ui: &Ui, cursor: usize) {
    let room = usize::from(frame.area().height).saturating_sub(2).max(1);
    let line = |(at, column): (usize, &super::model::Column)| {
        let mark = if ui.is_hidden(&column.name) { " " } else { "x" };
        let line = Line::raw(format!("[{mark}] {}", column.name));
        let here = Style::new().add_modifier(Modifier::REVERSED);
        if at == cursor { line.style(here) } else { line }
    };
    let skip = (cursor + 1).saturating_sub(room);
    let lines = model.columns.iter().enumerate().map(line).skip(skip).take(room).collect();
    popup(frame, "space shows or hides, a shows all", lines);
}

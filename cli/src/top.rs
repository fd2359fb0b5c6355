//! `shmstats top`

mod draw;
mod model;
mod source;
#[cfg(test)]
mod tests;
mod ui;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::{DefaultTerminal, Terminal};

use self::model::Model;
use self::source::Source;
use self::ui::{Done, Ui};
use crate::fail::Failure;
use crate::find;
use crate::text::{colours, parse_duration};

/// Shows a region live: rates by server, shared things, throughput.
///
/// Rates are over the last 1, 10 or 100 seconds of real time (key w), from totals, so the servers'
/// own log line loses nothing. A server that is stopped, silent, dead, or that counts less than a
/// tenth of what the others do is marked. When the region is removed, the view says so and takes
/// the next one of that name. Where stdout is no terminal, one view is printed as plain text.
///
/// Keys: q quit, p pause, s sort, r reverse, w window, c columns, arrows scroll, ? help.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The region's file; the only live region of the default folder if left out
    path: Option<PathBuf>,
    /// Time between readings: 1s, 500ms
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    refresh: Duration,
    /// Print one view after one refresh and end, also on a terminal
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let path = find::one(args.path.as_deref())?;
    let mut source = Source::open(&path)?;
    let mut model = Model::new(path.display().to_string());
    source.poll(&mut model);
    if args.once || !std::io::stdout().is_terminal() {
        thread::sleep(args.refresh);
        source.poll(&mut model);
        return print(&model);
    }
    let told = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&told);
    // Relaxed: a flag that stands for itself.
    let handler = move || {
        tell.store(true, Ordering::Relaxed);
        // The loop below ends by itself, unless the terminal is gone: then the event source reads
        // its end for ever and never returns.
        thread::sleep(4 * ATTENTION);
        std::process::exit(0);
    };
    ctrlc::set_handler(handler).map_err(|e| Failure::Bad(format!("cannot handle signals: {e}")))?;
    let terminal = ratatui::try_init()?;
    let done = watch(terminal, args.refresh, &mut source, &mut model, &told);
    ratatui::restore();
    done
}

/// How long a signal to end may go unnoticed.
const ATTENTION: Duration = Duration::from_millis(250);

fn watch(
    mut terminal: DefaultTerminal,
    refresh: Duration,
    source: &mut Source,
    model: &mut Model,
    told: &AtomicBool,
) -> Result<(), Failure> {
    let mut ui = Ui::new(colours());
    let mut next = Instant::now() + refresh;
    loop {
        terminal.draw(|frame| draw::view(frame, model, &mut ui))?;
        loop {
            if told.load(Ordering::Relaxed) {
                return Ok(());
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                next = (next + refresh).max(Instant::now());
                if !ui.is_paused() {
                    source.poll(model);
                }
                break;
            }
            if event::poll(left.min(ATTENTION))? {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        if ui.key(key, model) == Done::Quit {
                            return Ok(());
                        }
                    }
                    Event::Resize(..) => {}
                    _ => continue,
                }
                break;
            }
        }
    }
}

/// One view as plain text, as high as it has to be.
fn print(model: &Model) -> Result<(), Failure> {
    let mut ui = Ui::new(false);
    let width = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let width = width.filter(|width| (40..=500).contains(width)).unwrap_or(100);
    let height = u16::try_from(model.height()).unwrap_or(u16::MAX).clamp(10, 500);
    // Drawing to memory cannot fail.
    let mut terminal = Terminal::new(TestBackend::new(width, height)).map_err(infallible)?;
    terminal.draw(|frame| draw::view(frame, model, &mut ui)).map_err(infallible)?;
    let buffer = terminal.backend().buffer();
    let mut out = std::io::stdout().lock();
    for row in buffer.content().chunks(usize::from(width)) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn infallible(never: std::convert::Infallible) -> Failure {
    match never {}
}

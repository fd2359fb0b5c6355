//! A complete multi-process program: a launcher, and three workers that count together.
//!
//! ```sh
//! cargo run --example launcher        # until Ctrl-C; `shmstats top` looks on
//! ```

use std::error::Error;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use shmstats::process::{Backoff, OnExit};
use shmstats::schema::{CounterDef, GaugeDef};
use shmstats::{ProcessManager, Region, Schema, Server, StatLogger, region};

const WORKERS: u32 = 3;

/// What is measured, for the launcher and the workers alike.
fn schema() -> shmstats::Result<Schema> {
    Schema::builder("shop")
        .counter(CounterDef::new("orders").family("status", ["ok", "failed"]))
        .gauge(GaugeDef::i64("in_flight"))
        .build()
}

fn main() -> Result<(), Box<dyn Error>> {
    // Lines and warnings of the library go through `tracing`: without a subscriber none is seen.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // The launcher starts this very program again, with an argument.
    match std::env::args().nth(1).as_deref() {
        Some("worker") => work(),
        _ => launch(),
    }
}

fn launch() -> Result<(), Box<dyn Error>> {
    // Goes on with what is there, also after a crash. A program that must start even without shared
    // stats says `Region::options(WORKERS).open_or_private(…)`.
    let path = region::default_path("shop");
    let region = Region::open_or_create(&path, &schema()?, WORKERS)?;

    let program = std::env::current_exe()?;
    let worker = move |_index| {
        let mut command = Command::new(&program);
        // A process group of its own: Ctrl-C in the terminal reaches the launcher alone.
        command.arg("worker").process_group(0);
        command
    };
    let mut workers = ProcessManager::builder(WORKERS, worker)
        .region(&path) // SHMSTATS_REGION for the workers; their index is SHMSTATS_SERVER_INDEX
        .on_exit(OnExit::Restart(Backoff::default()))
        .spawn()?;
    let handle = workers.stop_handle();
    ctrlc::set_handler(move || handle.stop())?; // SIGINT and SIGTERM

    while workers.is_running() {
        for exit in workers.wait(Duration::MAX) {
            tracing::info!("{exit}");
        }
    }
    let totals = region.inspector()?.totals().get("orders");
    println!("{totals} orders in all");
    // Leave this out to go on counting in the same region next time.
    Ok(region.remove()?)
}

fn work() -> Result<(), Box<dyn Error>> {
    // Never fails to start: where there is no region it warns, and counts for itself.
    let server = Server::from_env(&schema()?);
    let ok = server.counter_with("orders", &[("status", "ok")])?;
    let in_flight = server.gauge::<i64>("in_flight")?;
    // In every worker: whichever of them is primary logs for all.
    let logger = StatLogger::builder(&server).interval(Duration::from_secs(2)).spawn()?;

    let (stop, stopped) = mpsc::channel();
    let handler = move || {
        let _ = stop.send(()); // told already
    };
    ctrlc::set_handler(handler)?;
    // The work, until SIGTERM.
    while stopped.recv_timeout(Duration::from_millis(5)).is_err() {
        let _order = in_flight.in_flight();
        ok.inc();
    }
    logger.stop(); // after the last count: logs the rest
    Ok(())
}

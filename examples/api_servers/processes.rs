//! The processes beside the launcher: how they are started, watched and ended.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use shmstats::process::{Backoff, ExitCause, OnExit, ProcessManager, ServerExit};
use tokio::signal::unix::{SignalKind, signal};
use tracing::warn;

use crate::options::Options;
use crate::{Fallible, engine};

pub(crate) fn start_servers(
    options: &Options,
    region: &Path,
    listener: TcpListener,
) -> Fallible<ProcessManager> {
    let program = std::env::current_exe()?;
    let command = move |_index| {
        let mut command = child(&program, "server");
        // Without it the server says what it misses, and the manager what became of it.
        command
            .stdin(listener.try_clone().map_or(Stdio::null(), |copy| OwnedFd::from(copy).into()));
        command
    };
    let on_exit = match options.restart {
        true => OnExit::Restart(Backoff::default()),
        false => OnExit::StopAll,
    };
    Ok(ProcessManager::builder(options.api_server_count, command)
        .region(region)
        .on_exit(on_exit)
        // More than a server allows itself.
        .grace(2 * crate::PATIENCE)
        .spawn()?)
}

/// False once a server has ended for good, which is the end of the others as well.
pub(crate) fn are_well(servers: &mut ProcessManager) -> bool {
    servers.wait(Duration::from_millis(50)).iter().for_each(report);
    !servers.is_stopping()
}

pub(crate) fn report(exit: &ServerExit) {
    if exit.cause == ExitCause::ByItself || !exit.success() {
        warn!("API {exit}");
    }
}

/// A command that starts this program again, with the same options, in another role.
fn child(program: &Path, role: &str) -> Command {
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    command.args(["--role", role, "--launcher", &std::process::id().to_string()]);
    // Ctrl-C at a terminal goes to a whole group. It shall reach the launcher alone, which stops
    // the others in order.
    command.process_group(0);
    command
}

/// For those others: ends this process if the launcher is killed, so that none is left behind.
pub(crate) fn end_with(launcher: u32) -> Fallible<()> {
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    if nix::unistd::getppid().as_raw() != launcher.cast_signed() {
        return Err("the launcher is gone".into());
    }
    Ok(())
}

/// Finishes at SIGTERM, SIGINT or SIGHUP. They no longer end the process once this has returned.
pub(crate) fn termination() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// Abstract socket names of the engines that belong to `owner`, a pid.
pub(crate) fn engine_names(owner: u32, engines: u32) -> Vec<String> {
    (0..engines).map(|engine| format!("api_servers-{owner}-engine-{engine}")).collect()
}

/// Engine processes. They have nothing to save: dropping them ends them.
pub(crate) struct Engines(Vec<Child>);

impl Engines {
    pub(crate) fn start(engines: u32) -> Fallible<Engines> {
        let program = std::env::current_exe()?;
        let mut started = Engines(Vec::new());
        for name in engine_names(std::process::id(), engines) {
            // Bound before the servers start, so that they can connect at once.
            let listener = OwnedFd::from(engine::listen(&name)?);
            started.0.push(child(&program, "engine").stdin(listener).spawn()?);
        }
        Ok(started)
    }

    /// What became of an engine that is gone, though nobody ended it.
    pub(crate) fn death(&mut self) -> Option<String> {
        self.0.iter_mut().enumerate().find_map(|(engine, child)| {
            let status = child.try_wait().ok()??;
            Some(format!("engine {engine} (pid {}) is gone: {status}", child.id()))
        })
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // An error says that it is gone already.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

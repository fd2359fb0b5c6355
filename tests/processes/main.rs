//! Tests on real processes. Started with a role, this binary is a server that does what its
//! standard input says (`worker.rs`); else it runs the tests, each of which starts such servers.

/// Lists tests by their functions' names.
macro_rules! tests {
    ($($test:ident),* $(,)?) => {
        pub(crate) const TESTS: &[(&str, fn())] = &[$((stringify!($test), $test as fn())),*];
    };
}

mod counting;
mod environment;
mod leases;
mod logging;
mod model;
mod shared;
mod support;
mod worker;

use libtest_mimic::{Arguments, Trial};

fn main() {
    match std::env::var(worker::ROLE).as_deref() {
        Ok("from_env") => return environment::run(),
        Ok(path) => return worker::run(std::path::Path::new(path)),
        Err(_) => {}
    }
    let mut trials: Vec<Trial> = Vec::new();
    for (module, tests) in [
        ("model", model::TESTS),
        ("counting", counting::TESTS),
        ("environment", environment::TESTS),
        ("leases", leases::TESTS),
        ("logging", logging::TESTS),
        ("shared", shared::TESTS),
    ] {
        for (name, test) in tests {
            trials.push(Trial::test(format!("{module}::{name}"), || {
                test();
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

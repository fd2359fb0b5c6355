//! A real Prometheus over two exporters, as over two machines, with the config and the rules that
//! docs/operations.md shows.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value as Json;
use shmstats::llm::{self, CacheStats, IterationStats, Recorder, SchedulerStats};
use shmstats::{Inspector, Region};

use crate::docs::block;
use crate::needs;
use crate::support::{Exporter, Folder, ask, wait_until};

/// Killed when dropped.
struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    fn start(folder: &Folder, targets: &[&str]) -> Self {
        let quoted: Vec<String> = targets.iter().map(|target| format!("\"{target}\"")).collect();
        let config = block("prometheus.yml")
            .replace(
                "[\"machine-1:9753\", \"machine-2:9753\"]",
                &format!("[{}]", quoted.join(", ")),
            )
            .replace(
                "scrape_interval: 10s",
                "scrape_interval: 200ms\n  evaluation_interval: 200ms",
            );
        assert!(config.contains(targets[0]) && config.contains("200ms"), "{config}");
        std::fs::write(folder.file("prometheus.yml"), config).unwrap();
        let rules = block("shmstats.rules.yml");
        std::fs::write(folder.file("shmstats.rules.yml"), rules).unwrap();
        let mut child = needs("prometheus", "prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .args(["--web.listen-address=127.0.0.1:0", "--log.level=info"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        // Read to the end, so that it never waits for its own log.
        thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut seen = Vec::new();
        let address = loop {
            let line = lines.recv_timeout(crate::support::LIMIT);
            let line = line.unwrap_or_else(|_| panic!("Prometheus does not listen: {seen:#?}"));
            let listens = line.contains("msg=\"Listening on\"");
            match line.split("address=").nth(1).filter(|_| listens) {
                Some(rest) => break rest.split_whitespace().next().unwrap().to_string(),
                None => seen.push(line),
            }
        };
        Prometheus { child, address }
    }

    /// The values of an instant query.
    fn query(&self, query: &str) -> Vec<f64> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let request =
            format!("GET /api/v1/query?query={escaped} HTTP/1.0\r\nHost: prometheus\r\n\r\n");
        let (head, body) = ask(&self.address, &request);
        if head.contains(" 503 ") {
            return Vec::new(); // It is still starting.
        }
        let answer: Json = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        assert_eq!(answer["status"], "success", "{answer}");
        let value = |sample: &Json| sample["value"][1].as_str().unwrap().parse().unwrap();
        answer["data"]["result"].as_array().unwrap().iter().map(value).collect()
    }

    /// Waits until a query has this one value.
    #[track_caller]
    fn wait_for(&self, query: &str, expected: f64) {
        wait_until(&format!("{query} to be {expected}"), || {
            (self.query(query) == [expected]).then_some(())
        });
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Four API servers with one engine, until told to end, and a primary that drains all the time.
fn machine(region: &Region, running: u64, end: &AtomicBool) {
    thread::scope(|scope| {
        for index in 0..4 {
            let server = region.claim(index).unwrap();
            scope.spawn(move || {
                let recorder = Recorder::new(&server).unwrap();
                let step = IterationStats {
                    prompt_tokens: 20,
                    prompt_tokens_computed: 10,
                    generation_tokens: u64::from(index) + 1,
                    prefix_cache: CacheStats { requests: 1, queries: 20, hits: 10 },
                    ..IterationStats::default()
                };
                let engine =
                    SchedulerStats { running, kv_cache_usage: 0.5, ..SchedulerStats::default() };
                // Relaxed: a flag that stands for itself.
                while !end.load(Ordering::Relaxed) {
                    recorder.record(0, Some(&engine), Some(&step));
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        scope.spawn(move || {
            let mut primary = region.primary().unwrap();
            while !end.load(Ordering::Relaxed) {
                drop(primary.drain());
                thread::sleep(Duration::from_millis(5));
            }
        });
    });
}

#[test]
fn its_sums_over_two_machines_are_the_regions_totals() {
    let folders = [Folder::new(), Folder::new()];
    let paths = folders.each_ref().map(|folder| folder.file("llm.shmstats"));
    let schema = llm::schema(1).unwrap();
    let regions = paths.each_ref().map(|path| Region::create(path, &schema, 4).unwrap());
    let exporters = folders.each_ref().map(|folder| Exporter::start(folder, &[]));
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        // Whatever fails, the machines end.
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let ending = End(&end);
        let machines: Vec<_> = regions
            .iter()
            .zip([3, 4])
            .map(|(region, running)| {
                let end = &end;
                scope.spawn(move || machine(region, running, end))
            })
            .collect();
        let home = Folder::new();
        let targets = exporters.each_ref().map(|exporter| exporter.address.as_str());
        let prometheus = Prometheus::start(&home, &targets);

        // The line's numbers, by the page's rules, while all run.
        prometheus.wait_for("job:shmstats_servers_alive:sum", 8.0);
        prometheus.wait_for("job:llm_requests_running:sum", 7.0);
        prometheus.wait_for("job:llm_kv_cache_usage:avg", 0.5);
        for (rule, least, most) in [
            ("job:llm_generation_tokens:rate1m", 1.0, 100_000.0),
            ("job:llm_prompt_tokens:rate1m", 1.0, 100_000.0),
            ("job:llm_prefix_cache_hits:ratio5m", 0.49, 0.51),
        ] {
            wait_until(rule, || {
                let values = prometheus.query(rule);
                (values.len() == 1 && (least..=most).contains(&values[0])).then_some(())
            });
        }
        drop(ending);
        machines.into_iter().for_each(|machine| machine.join().unwrap());

        // All servers are gone; what they counted is not.
        for name in [llm::names::GENERATION_TOKENS, llm::names::PROMPT_TOKENS] {
            let total = |path| Inspector::open(path).unwrap().totals().get(name);
            let totals: u64 = paths.iter().map(total).sum();
            assert!(totals > 0);
            prometheus.wait_for(&format!("sum(llm_{name}_total)"), totals as f64);
        }
        let total = Inspector::open(&paths[1]).unwrap().totals().clone();
        let hits = total.of(schema.find("cache_hits", &[("cache", "prefix")]).unwrap());
        let instance = &exporters[1].address;
        let query =
            format!("sum(llm_cache_hits_total{{cache=\"prefix\",instance=\"{instance}\"}})");
        prometheus.wait_for(&query, hits as f64);
        prometheus.wait_for("sum(shmstats_servers_configured)", 8.0);
        prometheus.wait_for("sum(shmstats_servers{state=\"released\"})", 8.0);
        prometheus.wait_for("sum(shmstats_regions_skipped)", 0.0);
    });
}

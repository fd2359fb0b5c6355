//! What docs/operations.md shows is what Prometheus takes.

use std::process::Stdio;

use crate::support::Folder;
use crate::{needs, root};

/// The block of the page that begins with this comment.
pub(crate) fn block(name: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let mut blocks = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let begins = |block: &&str| block.starts_with(&format!("# {name}\n"));
    blocks.find(begins).unwrap_or_else(|| panic!("no {name} in the page")).into()
}

#[test]
fn rules_and_scrape_config_are_valid() {
    let folder = Folder::new();
    for name in ["prometheus.yml", "shmstats.rules.yml"] {
        std::fs::write(folder.file(name), block(name)).unwrap();
    }
    for args in [["check", "rules", "shmstats.rules.yml"], ["check", "config", "prometheus.yml"]] {
        let mut promtool = needs("promtool", "prometheus");
        let output = promtool.args(args).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("SUCCESS"), "{said}");
    }
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let folder = Folder::new();
    let (region, _) = folder.region("shop.shmstats", 2);
    let server = region.claim(0).unwrap();
    server.gauge::<f64>("load").unwrap().set(0.5);
    let llm = folder.file("llm.shmstats");
    let llm = shmstats::Region::create(llm, &shmstats::llm::schema(2).unwrap(), 4).unwrap();
    let api = llm.claim(3).unwrap();
    let recorder = shmstats::llm::Recorder::new(&api).unwrap();
    recorder.record(0, Some(&shmstats::llm::SchedulerStats::default()), None);
    let _primary = region.primary().unwrap();
    let dir = folder.path().to_str().unwrap();
    for more in [&[][..], &["--sum"]] {
        let text = folder.run(&[&["export", dir, "--once"], more].concat()).good();
        let mut promtool = needs("promtool", "prometheus");
        let mut child = promtool
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}

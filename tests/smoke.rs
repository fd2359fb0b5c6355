//! t
use shmstats::schema::*;
use shmstats::*;
#[test]
fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let schema = Schema::builder("t")
        .counter("a")
        .counter(CounterDef::new("s").single_writer())
        .gauge(GaugeDef::i64("g"))
        .snapshot(
            SnapshotDef::new("e")
                .shared()
                .label("engine", "0")
                .gauge(GaugeDef::u64("running"))
                .gauge(GaugeDef::f64("kv").mean()),
        )
        .build()
        .unwrap();
    let p = dir.path().join("x.shmstats");
    let region = Region::create(&p, &schema, 2).unwrap();
    let s = region.claim(0).unwrap();
    assert!(region.claim(0).unwrap_err().to_string().contains("this process"));
    let c = s.counter("a").unwrap();
    c.add(5);
    let mut w = s.single_writer("s").unwrap();
    w.add(7);
    let g = s.gauge::<i64>("g").unwrap();
    g.add(3);
    let mut e = s.snapshot("e", &[("engine", "0")]).unwrap();
    let (r, k) = (e.field::<u64>("running").unwrap(), e.field::<f64>("kv").unwrap());
    e.set(r, 3);
    e.set(k, 0.5);
    e.publish();
    let mut p1 = region.primary().unwrap();
    assert!(region.primary().is_err());
    let i = p1.drain();
    assert_eq!(
        (i.delta("a"), i.delta("s"), i.gauge("g"), i.gauge("running"), i.gauge("kv")),
        (5, 7, Some(3.0), Some(3.0), Some(0.5))
    );
    let i = p1.drain();
    assert_eq!((i.delta("a"), i.delta("s")), (0, 0));
    c.add(1);
    let mut ins = Inspector::open(&p).unwrap();
    assert_eq!(ins.totals().get("a"), 6);
    assert_eq!(ins.totals().get("s"), 7);
    let o = ins.observe().unwrap();
    println!("{o:?}");
    p1.reset();
    assert_eq!(p1.drain().gauge("g"), None);
    drop((c, w, g, e, s, p1));
    assert!(p1_gone(&region));
    region.remove().unwrap();
    assert!(!p.exists());
}
fn p1_gone(r: &Region) -> bool {
    r.primary().is_ok()
}

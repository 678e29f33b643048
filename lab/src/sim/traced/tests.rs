//! Traces of simulated runs, read back whole and damaged.

use gradwire_netsim::fluid::FluidExtent;
use gradwire_trace::clocks::AlignedClocks;
use gradwire_trace::critical::CriticalPath;
use gradwire_trace::graph;
use gradwire_trace::network::TracedNetwork;
use gradwire_trace::replay::{Scene, coarse, measured, replay};
use gradwire_trace::run::TracedRun;
use gradwire_trace::search::{Depth, search};
use gradwire_trace::whatif::{WhatIf, changed};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::*;

/// Traces of a scenario, written and read back.
fn traced(workload: &str) -> (Workload, TracedRun) {
    let scenario = Scenario::new("single:4@10G", workload);
    let mut loaded = scenario.load().expect("both exist");
    prepare(&scenario, &mut loaded).expect("it has programs");
    let (outcome, summary) = scenario
        .run(&loaded, &mut |_| {})
        .expect("they fit each other");
    let files = traces(&loaded, &outcome, &summary).into_values();
    let files = files.map(|trace| Trace::from_json(&trace.to_json()).expect("just written"));
    let run = TracedRun::of(files.collect()).expect("all ranks are there");
    (loaded.setup.workload, run)
}

#[test]
fn a_trace_gives_back_the_programs_and_their_time() {
    for how in ["ps=1", "ddp,algorithm=ring"] {
        let (workload, run) = traced(&format!("step:alexnet:{how},scale=50,steps=2"));
        let read = graph::workload(&run).expect("it has steps");
        let tasks = |of: &Workload| {
            let tasks = of.programs.iter().flat_map(|program| &program.tasks);
            tasks
                .map(|task| (task.name.clone(), task.after.clone(), task.step))
                .collect::<Vec<_>>()
        };
        assert_eq!(tasks(&read), tasks(&workload));
        if how.starts_with("ps") {
            // A replay shares links ideally; servers on slow links are far from that.
            continue;
        }
        let scene = Scene {
            job: job(&run.head).expect("it was a job"),
            network: TracedNetwork::of(&run),
            extent: FluidExtent::Whole,
            workload: read,
        };
        let predicted = replay(&scene).expect("it is small").iteration_us();
        let real = measured(&run).iter().sum::<f64>() / 2.0;
        assert!(
            (predicted / real - 1.0).abs() < 0.1,
            "{how}: {predicted} for {real} us"
        );
    }
}

#[test]
fn flows_have_no_trace() {
    let scenario = Scenario::new("single:4@10G", "permutation:10KB");
    let mut loaded = scenario.load().expect("both exist");
    let error = prepare(&scenario, &mut loaded).expect_err("they run no program");
    assert!(error.to_string().contains("only training steps"), "{error}");
}
/// Values that no writer of traces writes, or in another place.
fn strange(rng: &mut ChaCha8Rng) -> Value {
    let values = [
        json!(0),
        json!(1),
        json!(3),
        json!(-1),
        json!(-1.5e9),
        json!(1e308),
        json!(u32::MAX),
        json!(1_u64 << 39),
        json!(u64::MAX),
        json!("forward x"),
        json!("FW"),
        json!("barrier"),
        json!([]),
        json!([[0, 0], [0, 1]]),
        Value::Null,
    ];
    values[rng.random_range(0..values.len())].clone()
}

/// Some value inside another one.
fn place<'v>(value: &'v mut Value, rng: &mut ChaCha8Rng) -> &'v mut Value {
    let children = match value {
        Value::Array(list) => list.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    if children == 0 || rng.random_bool(0.03) {
        return value;
    }
    let child = rng.random_range(0..children);
    let child = match value {
        Value::Array(list) => &mut list[child],
        Value::Object(fields) => fields.values_mut().nth(child).expect("it was counted"),
        _ => unreachable!("it has children"),
    };
    place(child, rng)
}

/// Changes, leaves out, repeats or exchanges something of a trace.
fn damage(trace: &mut Value, rng: &mut ChaCha8Rng) {
    let strange = strange(rng);
    let small = rng.random_range(0..6);
    match place(trace, rng) {
        Value::Number(number) if rng.random_bool(0.6) => {
            let value = number.as_f64().unwrap_or_default();
            *number = match number.is_u64() {
                true => small.into(),
                false => serde_json::Number::from_f64(value * f64::from(small))
                    .unwrap_or_else(|| small.into()),
            };
        }
        Value::Array(list) if !list.is_empty() => {
            let [one, other] = [0, 1].map(|_| rng.random_range(0..list.len()));
            match rng.random_range(0..3) {
                0 => drop(list.remove(one)),
                1 => list.insert(one, list[other].clone()),
                _ => list.swap(one, other),
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            let name = fields.keys().nth(rng.random_range(0..fields.len()));
            let name = name.expect("it was counted").clone();
            fields.remove(&name);
        }
        leaf => *leaf = strange,
    }
}

/// Lets everything that reads traces read these files.
fn read_all(texts: &[String]) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let files = texts.iter().map(|text| Trace::from_json(text));
    let files = files.collect::<Result<Vec<_>, _>>();
    let mut run =
        TracedRun::of(files.map_err(|error| told(&error))?).map_err(|(_, error)| told(&error))?;
    if let Ok(clocks) = AlignedClocks::of(&run) {
        clocks.apply(&mut run);
    }
    let workload = graph::workload(&run).map_err(|error| told(&error))?;
    let scene = Scene {
        job: job(&run.head).map_err(|error| told(&error))?,
        network: TracedNetwork::of(&run),
        extent: FluidExtent::Whole,
        workload,
    };
    let _ = measured(&run);
    let predicted = replay(&scene).map_err(|error| told(&error))?;
    let _ = CriticalPath::of(&scene.workload, &predicted).shares();
    coarse(&scene).map_err(|error| told(&error))?;
    for question in [
        "bucket=1KiB",
        "bucket=1GiB",
        "slow=0:2",
        "loss=1%",
        "beside=2",
    ] {
        let changes = WhatIf::list(question).expect("it is known");
        let changed = changed(&scene, &changes).map_err(|error| told(&error))?;
        replay(&changed).map_err(|error| told(&error))?;
    }
    let found = search(&scene, Depth::Partial, &mut |_, _| {});
    found.map(drop).map_err(|error| told(&error))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a long search asks GRADWIRE_SEEDS, see CONTRIBUTING.md"
)]
fn seeds() -> u64 {
    let given = std::env::var("GRADWIRE_SEEDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(25)
}

#[test]
fn damaged_traces_are_read_or_refused() {
    let (mut read, mut refused) = (0, 0);
    for how in ["ps=1", "ddp,algorithm=ring"] {
        let scenario = Scenario::new(
            "single:3@10G",
            &format!("step:alexnet:{how},scale=500,steps=2"),
        );
        let mut loaded = scenario.load().expect("both exist");
        prepare(&scenario, &mut loaded).expect("it has programs");
        let (outcome, summary) = (scenario.run(&loaded, &mut |_| {})).expect("they fit");
        let files = traces(&loaded, &outcome, &summary).into_values();
        let files = files.map(|trace| serde_json::to_value(trace).expect("plain data"));
        let files: Vec<Value> = files.collect();
        for seed in 0..seeds() {
            println!("{how}, seed {seed}");
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut damaged = files.clone();
            if seed % 2 == 0 {
                damaged.iter_mut().for_each(forget_tasks);
            }
            for _ in 0..rng.random_range(1..4) {
                let file = rng.random_range(0..damaged.len());
                damage(&mut damaged[file], &mut rng);
            }
            let mut texts: Vec<String> = damaged.iter().map(Value::to_string).collect();
            if rng.random_bool(0.05) {
                let length = rng.random_range(0..texts[0].len());
                texts[0].truncate(length);
            }
            match read_all(&texts) {
                Ok(()) => read += 1,
                Err(error) => {
                    assert!(error.len() > 20, "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(
        read > 1 && refused > 10,
        "{read} were read, {refused} refused"
    );
}

/// As ranks write events, which do not know the program.
fn forget_tasks(trace: &mut Value) {
    let events = trace["traceEvents"].as_array_mut();
    for event in events.into_iter().flatten() {
        let args = event["args"].as_object_mut().expect("every event has some");
        for name in ["id", "after", "after_start"] {
            args.remove(name);
        }
    }
}

//! `gradwire switch apply`: a namespace of a real kernel becomes a switch, follows the plan, and is
//! removed without a trace. Where namespaces cannot be made these tests say so and pass.

use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::processes::{errors, file, gradwire, objects, run, within_ten_seconds};

const FABRIC: &str = "single:2@20M";
/// 20 Mb/s x 10 ms: 25,000 bytes.
const RTT: &str = "10ms";

/// Namespaces of one test, with names that no other has; they end with it.
struct Lab {
    name: String,
    ports: [String; 2],
    hosts: Vec<String>,
}

impl Lab {
    fn new(test: &str) -> Self {
        let process = std::process::id();
        Self {
            name: format!("gw{test}{process}"),
            ports: [0, 1].map(|number| format!("{test}{process}p{number}")),
            hosts: Vec::new(),
        }
    }

    fn apply(&self, options: &[&str]) -> Output {
        let line = ["switch", "apply", "--netns", &self.name];
        run(&[&line[..], options].concat())
    }

    /// Sets up a switch of two ports; `false`, and the reason, where that cannot be.
    fn set_up(&self, job: &str, options: &[&str]) -> bool {
        let ports = self.ports.join(",");
        let line = ["--ports", &ports, "--rtt", RTT, job, FABRIC];
        let output = self.apply(&[&line[..], options].concat());
        let said = errors(&output);
        if output.status.code() == Some(5) {
            println!("skipped: {said}");
            return false;
        }
        assert_eq!(output.status.code(), Some(0), "{said}");
        true
    }

    /// A host behind a port, with an address.
    fn host(&mut self, number: usize) -> String {
        let host = format!("{}h{number}", self.name);
        ip(&["netns", "add", &host]);
        self.hosts.push(host.clone());
        let end = format!("{}-o", self.ports[number]);
        ip(&["link", "set", &end, "netns", &host]);
        let address = format!("10.84.0.{}/24", number + 1);
        ip(&["-n", &host, "address", "add", &address, "dev", &end]);
        ip(&["-n", &host, "link", "set", &end, "up"]);
        host
    }

    /// A command of `gradwire switch` about this switch.
    fn about(&self, command: &str, job: &str, more: &[&str]) -> Output {
        let ports = self.ports.join(",");
        let line = [
            "switch",
            command,
            "--platform",
            "linux:bpf",
            "--ports",
            &ports,
        ];
        run(&[&line[..], &["--rtt", RTT, job, FABRIC], more].concat())
    }

    /// The switch's export, as a file.
    fn export(&self, name: &str) -> String {
        let output = self.apply(&["--export"]);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let path = file(name, &String::from_utf8_lossy(&output.stdout));
        path.to_str().expect("a plain path").to_owned()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.apply(&["--remove"]);
        for host in &self.hosts {
            let _ = Command::new("ip").args(["netns", "delete", host]).status();
        }
    }
}

fn ip(words: &[&str]) {
    let status = Command::new("ip").args(words).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {words:?}");
}

fn inside(namespace: &str, arguments: &[&str]) -> Command {
    let gradwire = gradwire(arguments);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]);
    command
        .arg(gradwire.get_program())
        .args(gradwire.get_args());
    command
}

fn exists(path: &str) -> bool {
    std::path::Path::new(path).exists()
}

#[test]
fn namespaces_become_switches_and_are_removed_whole() {
    let lab = Lab::new("a");
    if !lab.set_up("default", &["--form", "bpf"]) {
        return;
    }
    // Twice is once.
    assert!(lab.set_up("default", &["--form", "bpf"]));
    let export = lab.export("applied.txt");
    let check = lab.about("check", "default", &[&export]);
    assert_eq!(check.status.code(), Some(0), "{}", errors(&check));
    let diff = lab.about("diff", "default", &[&export]);
    assert_eq!(diff.status.code(), Some(0), "{}", errors(&diff));
    assert_eq!(diff.stdout, b"", "nothing is to be changed");
    let verify = lab.about("verify", "default", &["--counters", &export]);
    let said = String::from_utf8_lossy(&verify.stdout).into_owned();
    let row = "p1, queue 5 (class-1): 0 sent, 0 marked, 0 dropped early";
    assert!(said.contains(row), "{said}");

    let folder = format!("/run/gradwire/{}", lab.name);
    let namespace = format!("/run/netns/{}", lab.name);
    assert!(exists(&folder) && exists(&namespace));
    let removed = lab.apply(&["--remove"]);
    assert_eq!(removed.status.code(), Some(0), "{}", errors(&removed));
    assert!(!exists(&folder) && !exists(&namespace));
    let again = lab.apply(&["--remove"]);
    assert!(errors(&again).contains("was not set up by `gradwire switch apply`"));
}

#[test]
fn failed_set_ups_are_removed_and_explained() {
    let mut lab = Lab::new("b");
    if !lab.set_up("default", &[]) {
        return;
    }
    lab.apply(&["--remove"]);
    let refusal = |lab: &Lab, options: &[&str]| {
        let output = lab.apply(options);
        assert_ne!(output.status.code(), Some(0));
        let said = errors(&output);
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    };
    let existing = ["--existing", "--ports", "p0,p1", "default", FABRIC];
    assert!(refusal(&lab, &existing).contains("there is no namespace gwb"));

    ip(&["netns", "add", &lab.name]);
    lab.hosts.push(lab.name.clone());
    let taken = ["--ports", "p0,p1", "default", FABRIC];
    assert!(refusal(&lab, &taken).contains("exists and is not ours: choose another name"));
    assert!(refusal(&lab, &existing).contains("has no interface p0"));
    assert!(
        exists(&format!("/run/netns/{}", lab.name)),
        "it was not ours"
    );
    assert!(!exists(&format!("/run/gradwire/{}", lab.name)));

    let long = ["--ports", "a-name-of-a-port", "default", FABRIC];
    assert!(refusal(&lab, &long).contains("at most 13 letters"));
    let named = run(&["switch", "apply", "--netns", "../x", "--remove"]);
    assert!(errors(&named).contains("write letters, digits, dashes and underscores"));
    let nothing = run(&["switch", "apply", "--netns", "x"]);
    assert_eq!(nothing.status.code(), Some(2));
}

/// A process that ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const JOB: &str = "name = \"lab\"\ntolerance = \"20%\"\npriority.dscps = [40, 34, 26, 18]\n";

/// Control and three classes: 1.5, 2, 30 and 0 Mb/s of payload, into 20 Mb/s. Their fate, and the
/// switch's counters before.
fn probed(lab: &mut Lab, job: &str) -> (Value, String) {
    let [first, second] = [0, 1].map(|number| lab.host(number));
    let serve = [
        "switch",
        "probe",
        "--serve",
        "--bind",
        "10.84.0.2",
        "--json",
    ];
    let mut serve = inside(&second, &serve);
    let serve = serve.stdout(Stdio::null()).spawn();
    let _serving = Serving(serve.expect("ip is there"));
    let line = [
        "switch",
        "probe",
        "--peer",
        "10.84.0.2:29410",
        job,
        "--json",
    ];
    let rates = ["--rate", "1500K,2M,30M,0", "--length", "3s"];
    assert!(within_ten_seconds(|| {
        let ping = [
            "switch",
            "probe",
            "--peer",
            "10.84.0.2:29410",
            job,
            "--length",
            "1ms",
        ];
        let output = inside(&first, &ping).output();
        output.is_ok_and(|output| output.status.code() == Some(0))
    }));
    let before = lab.export("before.txt");
    let output = inside(&first, &[&line[..], &rates].concat()).output();
    let output = output.expect("ip is there");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    (objects(&output).remove(0), before)
}

/// The packets of a class with these ECN bits, as a probe counted them.
fn stream(printed: &Value, class: &str, ecn: &str) -> Value {
    let streams = printed["streams"].as_array().expect("a list");
    let mut found = (streams.iter()).filter(|one| one["class"] == class && one["ecn"] == ecn);
    let found = found.next();
    found
        .unwrap_or_else(|| panic!("{class} {ecn}: {printed}"))
        .clone()
}

fn count(stream: &Value, name: &str) -> u64 {
    stream[name].as_u64().expect("a number")
}

fn lost(stream: &Value) -> u64 {
    count(stream, "sent") - count(stream, "received")
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a slow test asks GRADWIRE_SLOW, see CONTRIBUTING.md"
)]
fn bpf_marks_ect_and_drops_not_ect() {
    if std::env::var_os("GRADWIRE_SLOW").is_none() {
        println!("skipped: it takes seconds; GRADWIRE_SLOW=1 runs it");
        return;
    }
    let job = file("lab.toml", JOB);
    let job = job.to_str().expect("a plain path");
    let mut lab = Lab::new("c");
    if !lab.set_up(job, &["--form", "bpf"]) {
        return;
    }
    // If this machine stands still while it probes, a queue overflows: then it probes again.
    let (printed, before) = std::iter::repeat_with(|| probed(&mut lab, job))
        .take(3)
        .find(|(printed, _)| lost(&stream(printed, "class-2", "ECT")) == 0)
        .expect("a probe that no queue is too short for");
    let export = lab.export("probed.txt");
    let verify = lab.about("verify", job, &["--counters", &export, "--since", &before]);
    let said = String::from_utf8_lossy(&verify.stdout).into_owned();
    assert_eq!(verify.status.code(), Some(0), "{said}");
    println!("{}\n{said}", printed);
    let control = stream(&printed, "control", "ECT");
    assert_eq!((lost(&control), count(&control, "marked")), (0, 0));
    let [kept, droppable] = ["ECT", "not-ECT"].map(|ecn| stream(&printed, "class-2", ecn));
    assert!(count(&kept, "marked") > 0 && lost(&droppable) > 0);
    let row = format!(
        "p1, queue 1 (class-2): {} sent, {} marked, {} dropped early, 0 without room",
        count(&kept, "received") + count(&droppable, "received"),
        count(&kept, "marked"),
        lost(&droppable)
    );
    assert!(said.contains(&row), "{row} is not in\n{said}");
}

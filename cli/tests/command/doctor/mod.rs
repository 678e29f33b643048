//! `gradwire doctor` on hosts and paths with faults: each is found, named, and told how to mend.

mod network;
mod rewriting;

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Output};

use serde_json::Value;

use crate::processes::{errors, file, gradwire, objects, run};
use network::{FAR, NEAR, Network, Place, SERVER};

const GRADWIRE: &str = env!("CARGO_BIN_EXE_gradwire");

/// A server of probes, ended with the test.
struct Serving {
    process: Child,
    address: String,
}

impl Serving {
    fn read(mut process: Child) -> Self {
        let output = process.stdout.take().expect("it was asked for");
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it can be read");
        let mut said = String::new();
        if line.is_empty() {
            let errors = process.stderr.as_mut().expect("it was asked for");
            errors.read_to_string(&mut said).expect("errors are text");
        }
        let object: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}{said}"));
        let address = object["serving"]
            .as_str()
            .expect("it tells where")
            .to_owned();
        Self { process, address }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The findings of the client's doctor about the path to the server's.
fn examined(network: &Network, more: &[&str]) -> (Option<i32>, Value) {
    let serve = [
        GRADWIRE, "doctor", "--serve", "--json", "--bind", SERVER, "--port", "0",
    ];
    let serving = Serving::read(network.start(Place::Server, &serve));
    asked(network, &serving.address, more)
}

fn asked(network: &Network, server: &str, more: &[&str]) -> (Option<i32>, Value) {
    let ask = [&[GRADWIRE, "doctor", "--json", "--peer", server], more].concat();
    let output = network
        .command(Place::Client, &ask)
        .output()
        .expect("ip starts");
    (output.status.code(), object(&output))
}

fn object(output: &Output) -> Value {
    let mut objects = objects(output);
    assert_eq!(objects.len(), 1, "one object: {}", errors(output));
    objects.remove(0)
}

/// The check of this name in the first pair.
fn of_pair<'a>(report: &'a Value, name: &str) -> &'a Value {
    check(&report["pairs"][0], name)
}

fn check<'a>(place: &'a Value, name: &str) -> &'a Value {
    let checks = place["checks"].as_array().expect("checks are a list");
    let found = checks.iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is in {place}"))
}

fn says(check: &Value, key: &str, expected: &str) {
    let text = check[key].as_str().unwrap_or_default();
    assert!(
        text.contains(expected),
        "{expected:?} is in {key} of {check}"
    );
}

#[test]
fn a_path_without_faults_has_no_problem() {
    let Some(network) = Network::new() else {
        return;
    };
    let (code, report) = examined(&network, &[]);
    assert_eq!(code, Some(0), "{report}");
    let pair = &report["pairs"][0];
    for name in [
        "reachable",
        "round_trip",
        "path_mtu_there",
        "path_mtu_back",
        "dscp",
        "ecn",
        "gso_run",
        "gro_there",
        "gro_back",
        "ports",
    ] {
        assert_eq!(check(pair, name)["state"], "ok", "{pair}");
    }
    assert_eq!(pair["mtu"], 1_500);
    assert!(
        pair["round_trip_us"].as_f64().is_some_and(|us| us > 0.0),
        "{pair}"
    );
}

#[test]
fn black_holes_of_1280_bytes_are_found() {
    let Some(network) = Network::new() else {
        return;
    };
    let small = format!("link set {FAR} mtu 1280");
    network
        .ip(Place::Router, &small)
        .expect("the router is ours");
    let silence = "rule add ipproto icmp priority 1 blackhole";
    if let Err(reason) = network.ip(Place::Router, silence) {
        eprintln!("skipped: the router cannot be silenced: {reason}");
        return;
    }
    let (code, report) = examined(&network, &[]);
    assert_eq!(code, Some(1), "{report}");
    let hole = of_pair(&report, "path_mtu_there");
    assert_eq!(hole["state"], "problem");
    says(hole, "found", "black hole: packets above 1280 bytes vanish");
    says(hole, "mend", "transport.mtu = 1280");
    assert_eq!(report["pairs"][0]["mtu"], 1_280);
    let mended = file("small.toml", "[transport]\nmtu = 1280\n");
    let mended = mended.to_str().expect("a plain path");
    let (code, report) = examined(&network, &["--job", mended]);
    assert_eq!(code, Some(0), "what was to mend it mends it: {report}");
    network
        .ip(Place::Router, "rule delete priority 1")
        .expect("it was added");
    let (code, report) = examined(&network, &[]);
    assert_eq!(code, Some(1), "{report}");
    let honest = of_pair(&report, "path_mtu_there");
    says(honest, "found", "ICMP reports 1280");
    assert!(
        !honest["found"]
            .as_str()
            .unwrap_or("black hole")
            .contains("black hole")
    );
}

#[test]
fn an_interface_of_1280_bytes_is_warned_of() {
    let Some(network) = Network::new() else {
        return;
    };
    let small = format!("link set {NEAR} mtu 1280");
    network.ip(Place::Client, &small).expect("the host is ours");
    let output = network.output(Place::Client, &[GRADWIRE, "doctor", "--json"]);
    let report = object(&output.expect("a warning is no failure"));
    let mtu = check(&report["host"], "interface_mtu");
    assert_eq!(mtu["state"], "warning");
    says(mtu, "found", "near: 1280 bytes");
    says(mtu, "costs", "6.1 %");
    says(mtu, "mend", "ip link set dev near mtu 1500");
}

#[test]
fn rewritten_dscps_are_named_with_new_values() {
    let Some(network) = Network::new() else {
        return;
    };
    for (from, to, expected) in [
        (40, 8, "40 rewritten to 8 on the way there"),
        (34, 0, "34 bleached to 0 on the way there"),
    ] {
        let path = file(&format!("rewrite-{from}.o"), "");
        std::fs::write(&path, rewriting::rewriting(from, to)).expect("it was just written");
        let path = path.to_str().expect("a plain path");
        let qdisc = ["tc", "qdisc", "replace", "dev", FAR, "clsact"];
        let filter = [
            "tc", "filter", "replace", "dev", FAR, "egress", "pref", "1", "bpf", "da",
        ];
        let filter = [&filter[..], &["obj", path, "sec", "tc"]].concat();
        for command in [&qdisc[..], &filter] {
            if let Err(reason) = network.output(Place::Router, command) {
                eprintln!("skipped: no packet can be rewritten here: {reason}");
                return;
            }
        }
        let (_, report) = examined(&network, &[]);
        let dscp = of_pair(&report, "dscp");
        assert_eq!(dscp["state"], "warning");
        assert_eq!(dscp["found"], expected);
        says(dscp, "costs", "priority");
        says(dscp, "mend", "priority.dscps = [");
        assert_eq!(of_pair(&report, "ecn")["state"], "ok", "{report}");
        let delete = ["tc", "filter", "delete", "dev", FAR, "egress", "pref", "1"];
        network
            .output(Place::Router, &delete)
            .expect("it was added");
    }
}

#[test]
fn paths_without_gro_are_found_by_direction() {
    let Some(network) = Network::new() else {
        return;
    };
    let cut = format!("link set {NEAR} gso_max_segs 1");
    if let Err(reason) = network.ip(Place::Client, &cut) {
        eprintln!("skipped: runs cannot be cut here: {reason}");
        return;
    }
    let (code, report) = examined(&network, &[]);
    assert_eq!(code, Some(1), "{report}");
    let there = of_pair(&report, "gro_there");
    assert_eq!(there["state"], "problem");
    says(there, "found", "runs arrive at the peer as single packets");
    says(there, "costs", "a third of the speed");
    says(there, "mend", "ethtool -K IF gro on");
    assert_eq!(of_pair(&report, "gro_back")["state"], "ok", "{report}");
    let host = check(&report["host"], "interface_gro");
    says(host, "found", "near: generic-receive-offload is off");
}

#[test]
fn a_firewall_that_opens_one_port_only_is_found() {
    let Some(network) = Network::new() else {
        return;
    };
    let serve = [
        GRADWIRE, "doctor", "--serve", "--json", "--bind", SERVER, "--port", "29410",
    ];
    let serving = Serving::read(network.start(Place::Server, &serve));
    let open = format!("rule add to {SERVER} ipproto udp dport 29410 priority 1 lookup main");
    let closed = format!("rule add to {SERVER} ipproto udp priority 2 blackhole");
    for rule in [open, closed] {
        if let Err(reason) = network.ip(Place::Router, &rule) {
            eprintln!("skipped: the router cannot choose by port: {reason}");
            return;
        }
    }
    let (code, report) = asked(&network, &serving.address, &[]);
    assert_eq!(code, Some(1), "{report}");
    let ports = of_pair(&report, "ports");
    assert_eq!(ports["state"], "problem");
    assert_eq!(ports["found"], "1 of 8 pairs of ports are open");
}

#[test]
fn unreachable_peers_are_problems_with_reasons() {
    let Some(network) = Network::new() else {
        return;
    };
    let server = format!("{SERVER}:29410");
    let (code, report) = asked(&network, &server, &[]);
    assert_eq!(code, Some(1), "{report}");
    let refused = of_pair(&report, "reachable");
    says(refused, "found", "refuses UDP probes");
    says(refused, "mend", "gradwire doctor --serve --port 29410");
    let silence = format!("rule add to {SERVER} priority 1 blackhole");
    network
        .ip(Place::Router, &silence)
        .expect("the router is ours");
    let (code, report) = asked(&network, &server, &[]);
    assert_eq!(code, Some(1), "{report}");
    let silent = of_pair(&report, "reachable");
    assert_eq!(silent["state"], "problem");
    says(silent, "mend", "firewall");
}

/// A port that was free a moment ago.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel knows which port is free"
)]
fn free_port() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
    socket.local_addr().expect("it is bound")
}

#[test]
fn ranks_check_each_other_rank_0_reports() {
    let rendezvous = free_port().to_string();
    let rank = |rank: &str| {
        let options = [
            "--world",
            "3",
            "--rendezvous",
            &rendezvous,
            "--token",
            "secret",
            "--json",
        ];
        gradwire(&[&["doctor", "--rank", rank], &options[..]].concat())
    };
    let others: Vec<Child> = ["1", "2"]
        .iter()
        .map(|number| {
            let mut other = rank(number);
            other
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("it starts")
        })
        .collect();
    let first = rank("0").output().expect("it starts");
    let report = object(&first);
    let mut ways = Vec::new();
    for pair in report["pairs"].as_array().expect("pairs are a list") {
        assert_eq!(check(pair, "reachable")["state"], "ok", "{pair}");
        let end = |key: &str| pair[key].as_str().expect("ends are text").to_owned();
        ways.push((end("from"), end("to")));
    }
    ways.sort();
    let wanted = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    let wanted = wanted.map(|(from, to)| (format!("rank {from}"), format!("rank {to}")));
    assert_eq!(ways, wanted);
    assert_eq!(
        report["hosts"].as_array().map(Vec::len),
        Some(2),
        "{report}"
    );
    for other in others {
        let output = other.wait_with_output().expect("it can be waited for");
        let pairs = object(&output)["pairs"].as_array().map(Vec::len);
        assert_eq!(pairs, Some(2), "a rank prints its own paths");
    }
}

#[test]
fn a_host_is_checked_without_any_peer() {
    let report = object(&run(&["doctor", "--json", "--bind", "127.0.0.1"]));
    for name in [
        "gso",
        "gro",
        "interface_gso",
        "interface_gro",
        "interface_mtu",
        "receive_buffer",
        "send_buffer",
        "shared_memory",
        "io_uring",
        "af_xdp",
        "clock",
        "cores",
        "cpu_frequency",
        "locked_memory",
    ] {
        let check = check(&report["host"], name);
        if check["state"] != "ok" {
            assert!(
                check["costs"].is_string() && check["mend"].is_string(),
                "{check}"
            );
        }
    }
    assert_eq!(report["pairs"].as_array().map(Vec::len), Some(0));
    let crowded = run(&[
        "doctor",
        "--bind",
        "127.0.0.1",
        "--ranks",
        "60000",
        "--json",
    ]);
    assert_eq!(
        crowded.status.code(),
        Some(1),
        "so many ranks share no memory"
    );
    let report = object(&crowded);
    let shared = check(&report["host"], "shared_memory");
    assert_eq!(shared["state"], "problem");
    says(shared, "mend", "--shm-size=");
}

#[test]
fn the_small_shared_memory_of_a_container_is_found() {
    let mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm && exec \"$@\"";
    let confined = |ranks| {
        Command::new("unshare")
            .args([
                "-m", "sh", "-c", mount, "sh", GRADWIRE, "doctor", "--json", "--ranks", ranks,
            ])
            .args(["--bind", "127.0.0.1"])
            .output()
    };
    let Ok(few) = confined("2") else {
        eprintln!("skipped: there is no unshare here");
        return;
    };
    if few.stdout.is_empty() {
        eprintln!("skipped: no memory can be mounted here: {}", errors(&few));
        return;
    }
    assert_eq!(check(&object(&few)["host"], "shared_memory")["state"], "ok");
    let many = confined("16").expect("it started before");
    assert_eq!(many.status.code(), Some(1));
    let report = object(&many);
    let shared = check(&report["host"], "shared_memory");
    assert_eq!(shared["state"], "problem");
    says(
        shared,
        "found",
        "64 MiB free of 64 MiB; 16 ranks need 480 MiB",
    );
    says(shared, "costs", "40 instead of 90 Gb/s");
    says(shared, "mend", "--shm-size=1g");
}

#[test]
fn what_the_doctor_cannot_do_is_refused_in_words() {
    for (options, expected) in [
        (&["--peer", "nowhere"][..], "nowhere: "),
        (&["--peer", "127.0.0.1:0"], "port 0 cannot receive packets"),
        (&["--peer", "127.0.0.1:1", "--serve"], "cannot be used with"),
        (&["--port", "5"], "--serve"),
        (&["--rank", "0"], "--rendezvous"),
        (
            &["--bind", "192.0.2.77"],
            "no interface of this host has 192.0.2.77",
        ),
        (&["--ranks", "0"], "0 is not in 1..=65536"),
        (
            &["--job", "/nowhere/job.toml"],
            "cannot read /nowhere/job.toml",
        ),
    ] {
        let output = run(&[&["doctor"], options].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(errors(&output).contains(expected), "{}", errors(&output));
    }
    let ranks = [
        "doctor",
        "--rank",
        "2",
        "--world",
        "2",
        "--rendezvous",
        "127.0.0.1:5",
    ];
    let output = run(&ranks);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        errors(&output).contains("ranks are 0 to world - 1"),
        "{}",
        errors(&output)
    );
}

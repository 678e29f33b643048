//! Rules over dependencies: `deny.toml` is the one home of the conditions for them.

use std::process::Command;

use gradwire_tests::licence::is_allowed;
use gradwire_tests::tree::{read, root};
use serde_json::Value;

/// Packages that open sockets, run event loops or do cryptography for sockets. `libc` is not
/// among them: the random number generator reaches it.
const SOCKET_PACKAGES: [&str; 10] = [
    "async-std",
    "hyper",
    "io-uring",
    "mio",
    "nix",
    "quinn",
    "quinn-udp",
    "rustls",
    "socket2",
    "tokio",
];

fn cargo(arguments: &[&str]) -> String {
    let run = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .output();
    let run = run.expect("cargo runs this test, so it can be run");
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(
        run.status.success(),
        "cargo {}: {errors}",
        arguments.join(" ")
    );
    String::from_utf8(run.stdout).expect("cargo prints UTF-8")
}

/// Every package that this machine would build, as cargo describes it.
fn packages() -> Vec<Value> {
    let version = cargo(&["-vV"]);
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .expect("a host");
    let text = cargo(&[
        "metadata",
        "--locked",
        "--format-version=1",
        "--filter-platform",
        host,
    ]);
    let metadata: Value = serde_json::from_str(&text).expect("cargo metadata prints JSON");
    metadata["packages"]
        .as_array()
        .expect("packages are a list")
        .clone()
}

/// Lists the dependencies of a package of this repository, each line one package in the `format` of
/// `cargo tree`.
fn tree(package: &str, format: &str) -> Vec<String> {
    let options = "tree --locked -e normal,build --no-dedupe --prefix none -f";
    let mut arguments: Vec<&str> = options.split(' ').collect();
    arguments.extend([format, "-p", package]);
    let text = cargo(&arguments);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    lines
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or("")
}

fn allowed_licences() -> Vec<String> {
    let rules: toml::Table = read("deny.toml").text.parse().expect("deny.toml is TOML");
    let allowed = rules["licenses"]["allow"]
        .as_array()
        .expect("a list of licences");
    allowed
        .iter()
        .filter_map(|name| Some(name.as_str()?.to_owned()))
        .collect()
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let allowed = allowed_licences();
    let packages = packages();
    let wrong = packages
        .iter()
        .filter(|package| !is_allowed(text(package, "license"), &allowed));
    let names: Vec<String> = wrong
        .map(|package| format!("{}: `{}`", text(package, "name"), text(package, "license")))
        .collect();
    assert!(
        names.is_empty(),
        "deny.toml does not allow these licences:\n{}",
        names.join("\n")
    );
}

#[test]
fn every_dependency_comes_from_the_registry_or_this_repository() {
    let elsewhere: Vec<String> = packages()
        .iter()
        .filter(|package| !package["source"].is_null())
        .filter(|package| !text(package, "source").starts_with("registry+"))
        .map(|package| format!("{} from {}", text(package, "name"), text(package, "source")))
        .collect();
    assert!(
        elsewhere.is_empty(),
        "deny.toml denies these sources:\n{}",
        elsewhere.join("\n")
    );
}

#[test]
fn no_banned_package_is_built_upon() {
    let rules: toml::Table = read("deny.toml").text.parse().expect("deny.toml is TOML");
    let banned = rules["bans"]["deny"]
        .as_array()
        .expect("a list of packages");
    let packages = packages();
    for ban in banned {
        let name = ban["name"].as_str().expect("a ban names a package");
        let used = packages.iter().any(|package| text(package, "name") == name);
        assert!(!used, "Cargo.lock: deny.toml bans `{name}`");
    }
}

#[test]
fn no_socket_package_is_below_protocol_collectives_or_the_simulator() {
    for package in [
        "gradwire-protocol",
        "gradwire-collectives",
        "gradwire-fabric",
        "gradwire-switch-config",
        "gradwire-workloads",
        "gradwire-netsim",
        "gradwire-testnet",
        "gradwire-tuning",
    ] {
        let names = tree(package, "{p}");
        let names = names.iter().filter_map(|line| line.split(' ').next());
        let sockets: Vec<&str> = names
            .filter(|name| SOCKET_PACKAGES.contains(name))
            .collect();
        assert!(
            sockets.is_empty(),
            "{package} reaches {sockets:?}: it is sans-IO"
        );
    }
}

#[test]
fn every_member_keeps_the_lints_and_the_core_has_no_features() {
    let workspace: toml::Table = read("Cargo.toml")
        .text
        .parse()
        .expect("the manifest is TOML");
    let members = workspace["workspace"]["members"]
        .as_array()
        .expect("a list of members");
    for member in members.iter().filter_map(toml::Value::as_str) {
        let path = format!("{member}/Cargo.toml");
        let manifest: toml::Table = read(&path).text.parse().expect("a manifest is TOML");
        let lints = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"));
        let kept = lints.and_then(toml::Value::as_bool) == Some(true);
        assert!(kept, "{path}: add `[lints] workspace = true`");
        let core = [
            "protocol",
            "collectives",
            "fabric",
            "workloads",
            "netsim",
            "testnet",
            "tuning",
        ];
        let core = core.contains(&member);
        assert!(
            !core || !manifest.contains_key("features"),
            "{path}: no features in the core"
        );
    }
}

#[test]
fn what_the_library_and_the_command_of_a_wheel_share_is_compiled_once() {
    let command = tree("gradwire-cli", "{p} with {f}");
    let of_library = tree("gradwire-python", "{p} with {f}");
    let twice: Vec<&String> = of_library
        .iter()
        .filter(|line| !line.starts_with("gradwire-python ") && !command.contains(line))
        .collect();
    assert!(
        twice.is_empty(),
        "the command has these with other features: say in python/Cargo.toml which: {twice:#?}"
    );
}

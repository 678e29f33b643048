//! `gradwire switch apply`: a network namespace that is a switch, with the queues of a plan.
//!
//! [`Linux`] writes the commands for tc. This file chooses the form that this kernel can do, makes
//! the namespace around it, and can take all of it away again: [`kept`] remembers it.

pub mod kept;
pub mod options;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use gradwire_switch_config::dialect::linux::Linux;
use gradwire_switch_config::plan::Plan;

use self::kept::{Kept, KeptFolder};
use self::options::{Apply, WantedForm};
use super::site::PlanOrigin;
use crate::exit::CommandError;
use gradwire_lab::error::LabError;
use gradwire_lab::{files, netns};

/// Where `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";
/// The bridge in a namespace.
const BRIDGE: &str = "br0";
/// Behind the name of a port, the other end of its pair.
const OTHER_END: &str = "-o";
/// Letters of an interface's name (linux/if.h, `IFNAMSIZ` less the zero behind it).
const NAME_MOST: usize = 15;

/// Runs the command.
///
/// # Errors
/// [`CommandError`] names the missing thing: rights, a program, a free name, a port.
pub fn run(options: &Apply) -> Result<(), CommandError> {
    let name = &options.netns;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return Err(CommandError::Usage(format!(
            "--netns {name}: write letters, digits, dashes and underscores"
        )));
    }
    let folder = KeptFolder::of(name);
    match (options.remove, options.export) {
        (true, _) => Ok(remove(name, &folder)?),
        (_, true) => Ok(export(name, &folder)?),
        _ => apply(options, &folder),
    }
}

fn failure(message: String) -> LabError {
    netns::failure("switch apply", message)
}

/// The features of a kernel that `apply` needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kernel {
    /// prio and red.
    Both,
    /// HTB, but not both of them.
    HtbOnly,
}

impl Kernel {
    /// Tries it, in a namespace that no other process is in.
    fn tried() -> Result<Self, LabError> {
        let room = netns::unnamed().map_err(|error| netns::refused("switch apply", error))?;
        let has = |line: &str| -> Result<bool, LabError> {
            let words = line.split(' ');
            let mut command = Command::new("tc");
            command.args(["qdisc", "replace", "dev", "lo"]).args(words);
            Ok(netns::run("switch apply", &room, &mut command, "")?
                .status
                .success())
        };
        if has("root handle 1: prio")?
            && has(
                "parent 1:1 red limit 9000 min 1000 max 2000 avpkt 1000 burst 1 bandwidth 1mbit",
            )?
        {
            return Ok(Self::Both);
        }
        match has("root handle 2: htb")? {
            true => Ok(Self::HtbOnly),
            false => Err(failure(
                "this kernel has no queueing discipline htb, without which a port has no rate \
                 (CONFIG_NET_SCH_HTB)"
                    .to_owned(),
            )),
        }
    }
}

/// The target, and why it was chosen.
fn target(wanted: WantedForm) -> Result<(&'static str, &'static str), LabError> {
    Ok(match (wanted, Kernel::tried()?) {
        (WantedForm::Auto, Kernel::Both) => ("linux:lab", "this kernel has prio and red"),
        (WantedForm::Auto, Kernel::HtbOnly) => (
            "linux:bpf",
            "this kernel has no prio or no red: HTB and an eBPF program do their work",
        ),
        (WantedForm::Lab, Kernel::Both) => ("linux:lab", "prio and red, as asked for"),
        (WantedForm::Lab, Kernel::HtbOnly) => {
            return Err(failure(
                "--form lab: this kernel has no prio or no red (CONFIG_NET_SCH_PRIO, \
                 CONFIG_NET_SCH_RED); --form bpf does without"
                    .to_owned(),
            ));
        }
        (WantedForm::Bpf, _) => ("linux:bpf", "HTB and an eBPF program, as asked for"),
    })
}

fn apply(options: &Apply, folder: &KeptFolder) -> Result<(), CommandError> {
    let name = &options.netns;
    let (platform, reason) = target(options.form)?;
    let plan_options = options.plan(platform);
    let origin = PlanOrigin::load(&plan_options)?;
    let plan = origin.plan()?;
    check_names(&plan)?;
    let before = folder.read();
    let made = make_namespace(options, before.as_ref())?;
    let kept = Kept {
        made: made || before.as_ref().is_some_and(|before| before.made),
        bridge: !options.router,
        ports: plan
            .site
            .ports
            .iter()
            .map(|port| port.name.clone())
            .collect(),
        export: Linux::export_command(&plan),
    };
    let script = origin.dialect.render(&plan);
    if before.is_none() {
        check_room(options, &open(name)?, &kept)?;
    }
    let done = open(name).and_then(|room| {
        folder.make()?;
        set_up(&room, &kept)?;
        let routing = if options.router { FORWARDING } else { "" };
        shell(&room, folder, &(routing.to_owned() + &script))?;
        folder.write(&kept)
    });
    if let Err(failure) = done {
        // An older namespace stays; one made now is removed again.
        if before.is_none() {
            let _ = take_away(name, folder, &kept);
        }
        return Err(failure.into());
    }
    let shape = if options.router {
        "a router"
    } else {
        "a bridge"
    };
    let ports = kept.ports.join(", ");
    println!(
        "{name}: {shape} of {} with the ports {ports}",
        origin.switch()?
    );
    println!("{platform}: {reason}");
    Ok(())
}

/// A name that the kernel takes, for a port and for the other end of its pair.
fn check_names(plan: &Plan) -> Result<(), LabError> {
    let most = NAME_MOST - OTHER_END.len();
    let fits = |name: &str| name.len() <= most && !name.contains(['/', ' ']);
    let mut ports = plan.site.ports.iter();
    match ports.find(|port| !fits(&port.name)) {
        Some(port) => Err(LabError::Usage(format!(
            "--ports: {} is no name here: at most {most} letters, no slash",
            port.name
        ))),
        None => Ok(()),
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(NAMESPACES).join(name)
}

fn open(name: &str) -> Result<File, LabError> {
    let path = path(name);
    File::open(&path).map_err(files::unreadable(&path))
}

/// Sees that there is a namespace of this name; whether it was made now.
fn make_namespace(options: &Apply, before: Option<&Kept>) -> Result<bool, LabError> {
    let name = &options.netns;
    match (path(name).exists(), options.existing, before) {
        (true, true, _) | (true, false, Some(_)) => Ok(false),
        (true, false, None) => Err(failure(format!(
            "the namespace {name} exists and is not ours: choose another name, or say --existing \
             to set up ports that it has"
        ))),
        (false, true, _) => Err(failure(format!(
            "--existing: there is no namespace {name} (`ip netns list` tells them)"
        ))),
        (false, false, _) => {
            let output = Command::new("ip").args(["netns", "add", name]).output();
            let output = output.map_err(LabError::system("running ip"))?;
            match output.status.success() {
                true => Ok(true),
                false => Err(failure(format!(
                    "ip netns add {name}: {}",
                    netns::first_line(&output)
                ))),
            }
        }
    }
}

/// Checks that a namespace of somebody else has everything that is needed, and no setting that is
/// in the way.
fn check_room(options: &Apply, room: &File, kept: &Kept) -> Result<(), LabError> {
    let name = &options.netns;
    for port in kept.ports.iter().filter(|_| options.existing) {
        if !has(room, port)? {
            return Err(failure(format!(
                "--existing: {name} has no interface {port}"
            )));
        }
    }
    match kept.bridge && has(room, BRIDGE)? {
        true => Err(failure(format!(
            "--existing: {name} has a {BRIDGE} already; --router leaves it alone"
        ))),
        false => Ok(()),
    }
}

/// Ports that are not there, and the bridge.
fn set_up(room: &File, kept: &Kept) -> Result<(), LabError> {
    let ip = |lines: &[String]| netns::batch("switch apply", "ip", room, lines);
    for port in &kept.ports {
        if has(room, port)? {
            continue;
        }
        let other = format!("{port}{OTHER_END}");
        let here = format!("/proc/{}/ns/net", std::process::id());
        // A large packet would be judged as one, so neither end may send one: segmentation offload
        // goes off.
        ip(&[format!(
            "link add {port} gso_max_segs 1 type veth peer name {other} gso_max_segs 1 netns {here}"
        )])?;
    }
    let mut lines = Vec::new();
    if kept.bridge && !has(room, BRIDGE)? {
        lines.push(format!("link add {BRIDGE} type bridge"));
    }
    for port in &kept.ports {
        lines.push(match kept.bridge {
            true => format!("link set {port} master {BRIDGE} up"),
            false => format!("link set {port} up"),
        });
    }
    if kept.bridge {
        lines.push(format!("link set {BRIDGE} up"));
    }
    lines.push("link set lo up".to_owned());
    ip(&lines)
}

fn has(room: &File, interface: &str) -> Result<bool, LabError> {
    let mut command = Command::new("ip");
    command.args(["link", "show", "dev", interface]);
    Ok(netns::run("switch apply", room, &mut command, "")?
        .status
        .success())
}

/// Switches routing on.
const FORWARDING: &str = "\
for path in /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding; do
    [ ! -e $path ] || echo 1 >$path
done
";

fn shell(room: &File, folder: &KeptFolder, script: &str) -> Result<(), LabError> {
    let mut command = Command::new("sh");
    command.arg("-s").env("BPFFS", folder.bpffs());
    let output = netns::run("switch apply", room, &mut command, script)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failure(format!("tc: {}", netns::first_line(&output)))),
    }
}

fn known(name: &str, folder: &KeptFolder) -> Result<Kept, LabError> {
    folder.read().ok_or_else(|| {
        failure(format!(
            "{name} was not set up by `gradwire switch apply` (its folder in /run is missing)"
        ))
    })
}

fn export(name: &str, folder: &KeptFolder) -> Result<(), LabError> {
    let kept = known(name, folder)?;
    let room = open(name)?;
    let mut command = Command::new("sh");
    command.arg("-s").env("BPFFS", folder.bpffs());
    // A missing setting or filter is left out: tc says so, and that does no harm.
    let output = netns::run("switch apply", &room, &mut command, &kept.export)?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

fn remove(name: &str, folder: &KeptFolder) -> Result<(), LabError> {
    let kept = known(name, folder)?;
    take_away(name, folder, &kept)?;
    println!("{name}: taken away");
    Ok(())
}

fn take_away(name: &str, folder: &KeptFolder, kept: &Kept) -> Result<(), LabError> {
    if kept.made {
        let output = Command::new("ip").args(["netns", "del", name]).output();
        output.map_err(LabError::system("running ip"))?;
    } else if let Ok(room) = open(name) {
        for port in &kept.ports {
            let mut command = Command::new("tc");
            command.args(["qdisc", "del", "dev", port, "root"]);
            netns::run("switch apply", &room, &mut command, "")?;
        }
        if kept.bridge && has(&room, BRIDGE)? {
            let lines = [format!("link del {BRIDGE}")];
            netns::batch("switch apply", "ip", &room, &lines)?;
        }
    }
    folder.remove()
}

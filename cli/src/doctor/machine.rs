//! The checks of this machine beside its network: shared memory, clock, cores, and features that
//! the kernel forbids.

use std::io;
use std::time::Duration;

use gradwire_protocol::job::WireChoice;
use gradwire_protocol::units::ByteCount;
use gradwire_transport::probe::system;
use gradwire_transport::shm::{self, MemoryRoom, RING_MAX};
use gradwire_transport::uring::{self, UringUnavailable};
use gradwire_transport::xdp;

use super::finding::HostFinding;
use super::host::HostPlan;

const LOCKED_BYTES: u64 = 8 << 20;
/// A reading of a clock that is not the processor's own takes several times as long.
const CLOCK_COST_MAX: Duration = Duration::from_nanos(250);
const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0";

/// Checks this machine.
pub fn check(wanted: &HostPlan<'_>) -> Vec<HostFinding> {
    let source = word(&format!("{CLOCK}/current_clocksource"));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    vec![
        shared_memory(shm::room(), (wanted.ranks, wanted.job.transport.wire)),
        io_uring(uring::probe().err()),
        af_xdp(wanted),
        clock(&source, system::clock_cost()),
        cores_of(cores, wanted.ranks),
        frequency(&word(governor)),
        locked_memory(system::locked_memory()),
    ]
}

fn shared_memory(room: io::Result<MemoryRoom>, (ranks, wire): (u32, WireChoice)) -> HostFinding {
    let check = "shared_memory";
    let udp = "ranks of this host talk over UDP: 40 instead of 90 Gb/s";
    if !matches!(wire, WireChoice::Auto | WireChoice::SharedMemory) {
        return HostFinding::ok(check, "not used: transport.wire names another");
    }
    // One ring each way, within half of the free memory.
    let ranks = u64::from(ranks.max(2));
    let needed = 2 * RING_MAX * ranks * (ranks - 1);
    let gibibytes = needed.next_multiple_of(1 << 30) >> 30;
    let enlarge = format!(
        "mount -o remount,size={gibibytes}G /dev/shm  # of a container: --shm-size={gibibytes}g"
    );
    let room = match room {
        Ok(room) => room,
        Err(error) => {
            return HostFinding::warning(check, format!("there is no /dev/shm: {error}"))
                .costs(udp)
                .mend("mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm");
        }
    };
    let found = format!(
        "/dev/shm: {} free of {}; {ranks} ranks need {}",
        mebibytes(room.free),
        mebibytes(room.size),
        mebibytes(needed)
    );
    match shm::ring_bytes(room.free, ranks) {
        None => return HostFinding::problem(check, found).costs(udp).mend(enlarge),
        Some(bytes) if bytes < RING_MAX => {
            let costs = format!("windows between these ranks shrink to {} KiB", bytes >> 11);
            return HostFinding::warning(check, found)
                .costs(costs)
                .mend(enlarge);
        }
        Some(_) => {}
    }
    match shared_file() {
        Ok(()) => HostFinding::ok(check, found),
        Err(error) => {
            HostFinding::problem(check, format!("no file can be made in /dev/shm: {error}"))
                .costs(udp)
                .mend("chmod 1777 /dev/shm")
        }
    }
}

/// Whether two processes could share a file there: it is written, and opened a second time.
fn shared_file() -> io::Result<()> {
    let path = format!("/dev/shm/gradwire-doctor-{}", std::process::id());
    let shared = std::fs::write(&path, path.as_bytes()).and_then(|()| std::fs::read(&path));
    let removed = std::fs::remove_file(&path);
    match shared? == path.as_bytes() {
        true => removed,
        false => Err(io::Error::other("it does not keep written data")),
    }
}

fn io_uring(refused: Option<UringUnavailable>) -> HostFinding {
    let check = "io_uring";
    let Some(error) = refused else {
        return HostFinding::ok(check, "allowed");
    };
    let mend = match error {
        UringUnavailable::Disabled { .. } => "sysctl -w kernel.io_uring_disabled=0",
        UringUnavailable::Memory { .. } => "ulimit -l unlimited",
        UringUnavailable::TooOld { .. } => "uname -r  # io_uring is used from Linux 6.1 on",
        _ => "docker run --security-opt seccomp=unconfined  # or a profile that allows io_uring",
    };
    HostFinding::ok(
        check,
        format!("not allowed ({error}); UDP sockets work without it"),
    )
    .costs("nothing measurable: 43 Gb/s with it, 40 to 45 without")
    .mend(mend)
}

/// Whether this host can carry a job that asks for AF_XDP. For other jobs nothing is tried: some
/// drivers start again when a program comes to their NIC.
fn af_xdp(wanted: &HostPlan<'_>) -> HostFinding {
    let check = "af_xdp";
    let transport = &wanted.job.transport;
    if transport.wire != WireChoice::Xdp {
        return HostFinding::ok(check, "not used: transport.wire names another");
    }
    let Some(&address) = wanted.addresses.first() else {
        return HostFinding::problem(check, "there is no address to try").mend("ip address show");
    };
    match xdp::probe(transport, address) {
        Ok(found) => HostFinding::ok(check, format!("{found}, for one rank")),
        Err(error) => HostFinding::problem(check, error.to_string())
            .costs("the job does not start")
            .mend("gradwire doctor --wire udp  # the same job over UDP"),
    }
}

fn clock(source: &str, cost: Duration) -> HostFinding {
    let check = "clock";
    let source = if source.is_empty() { "unknown" } else { source };
    let found = format!("{source}; one reading takes {} ns", cost.as_nanos());
    let slow = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"].contains(&source);
    if !slow && cost <= CLOCK_COST_MAX {
        return HostFinding::ok(check, found);
    }
    let available = word(&format!("{CLOCK}/available_clocksource"));
    let mend = if source != "tsc" && available.split(' ').any(|one| one == "tsc") {
        format!("echo tsc > {CLOCK}/current_clocksource")
    } else {
        "reboot  # with tsc=reliable on the kernel's command line".to_owned()
    };
    HostFinding::warning(check, found)
        .costs("the clock is read for every batch; a packet's share of all work is 40 to 60 ns")
        .mend(mend)
}

fn cores_of(cores: u32, ranks: u32) -> HostFinding {
    let found = format!("{cores} for {ranks} ranks");
    if ranks <= cores {
        return HostFinding::ok("cores", found);
    }
    HostFinding::warning("cores", found)
        .costs("ranks take turns: 8 MiB take 12 ms with two ranks a core, 3 ms with one")
        .mend(format!(
            "torchrun --nproc-per-node {cores}  # or transport.idle = \"block\""
        ))
}

fn frequency(governor: &str) -> HostFinding {
    let check = "cpu_frequency";
    match governor {
        "" => HostFinding::ok(
            check,
            "no frequency governor is visible, as in a virtual machine",
        ),
        "powersave" | "conservative" => {
            HostFinding::warning(check, format!("the governor is {governor}"))
                .costs("cores that wait for packets slow down: longer round trips")
                .mend("cpupower frequency-set -g performance")
        }
        other => HostFinding::ok(check, format!("the governor is {other}")),
    }
}

fn locked_memory(limit: io::Result<Option<u64>>) -> HostFinding {
    let check = "locked_memory";
    match limit {
        Ok(None) => HostFinding::ok(check, "any amount"),
        Ok(Some(bytes)) if bytes >= LOCKED_BYTES => HostFinding::ok(check, mebibytes(bytes)),
        Ok(Some(bytes)) => {
            HostFinding::warning(check, format!("{bytes} bytes, 8 MiB are the usual least"))
                .costs("buffers cannot be pinned for io_uring or RDMA")
                .mend("ulimit -l unlimited  # of a container: --ulimit memlock=-1")
        }
        Err(error) => HostFinding::warning(check, format!("the limit is unknown: {error}")),
    }
}

/// The text of a small file of the system; empty where it cannot be read.
fn word(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// The number in a small file of the system, if it is there.
pub(super) fn number(path: &str) -> Option<u64> {
    word(path).parse().ok()
}

/// Bytes for people.
pub(super) fn mebibytes(bytes: u64) -> String {
    match bytes >> 20 {
        0 => ByteCount::new(bytes).to_string(),
        whole => format!("{whole} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{FindingState, mended};
    use super::*;

    #[test]
    fn container_memory_is_enough_for_few_ranks() {
        let container = || {
            Ok(MemoryRoom {
                size: 64 << 20,
                free: 64 << 20,
            })
        };
        let shared = |ranks| shared_memory(container(), (ranks, WireChoice::Auto));
        assert_eq!(shared(4).state, FindingState::Ok, "6 pairs need 24 MiB");
        let some = shared(8);
        assert_eq!(some.state, FindingState::Warning, "28 pairs need 112 MiB");
        assert_eq!(
            some.costs.as_deref(),
            Some("windows between these ranks shrink to 256 KiB")
        );
        let many = shared(16);
        assert_eq!(
            many.state,
            FindingState::Problem,
            "120 pairs need 120 MiB at least"
        );
        assert!(mended(&many).contains("--shm-size=1g"), "{many:?}");
        let missing = || Err(io::Error::from(io::ErrorKind::NotFound));
        let absent = shared_memory(missing(), (2, WireChoice::Auto));
        assert_eq!(absent.state, FindingState::Warning);
        assert_eq!(
            shared_memory(missing(), (2, WireChoice::Udp)).state,
            FindingState::Ok,
            "not used"
        );
    }

    #[test]
    fn slow_clocks_and_crowded_cores_are_warned_of() {
        let fast = Duration::from_nanos(40);
        assert_eq!(clock("tsc", fast).state, FindingState::Ok);
        assert_eq!(clock("hpet", fast).state, FindingState::Warning);
        assert_eq!(
            clock("tsc", Duration::from_micros(1)).state,
            FindingState::Warning
        );
        assert_eq!(cores_of(8, 8).state, FindingState::Ok);
        assert!(mended(&cores_of(2, 8)).contains("--nproc-per-node 2"));
        assert_eq!(frequency("powersave").state, FindingState::Warning);
        assert_eq!(frequency("").state, FindingState::Ok);
    }

    #[test]
    fn io_uring_is_not_needed() {
        let source = io::Error::from_raw_os_error(1);
        let forbidden = io_uring(Some(UringUnavailable::Filtered { source }));
        assert_eq!(forbidden.state, FindingState::Ok);
        assert!(forbidden.found.contains("not allowed"), "{forbidden:?}");
        assert!(mended(&forbidden).contains("io_uring"));
    }
}

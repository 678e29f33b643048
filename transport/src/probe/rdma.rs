//! The RDMA devices of this host: ports, addresses and settings as the kernel shows them in its
//! folders (`Documentation/ABI/stable/sysfs-class-infiniband`). Reading them needs no library.
//!
//! Not here: opening and using devices (`crate::rdma`), and priority flow control, which is a
//! setting of the interface below (`dcb`).

use std::fs::{self, OpenOptions};
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

const DEVICES: &str = "sys/class/infiniband";
/// The maximum number of GIDs that are read. The kernel does not report the size of its table;
/// drivers give it up to 256 entries.
const GIDS_MAX: usize = 1_024;
/// Bytes of RoCE v2 besides the payload, as the kernel counts (`iboe_get_mtu`): GRH 40, UDP 8,
/// BTH 12, XRC 4, AtomicETH 28, ICRC 4.
const HEADER_BYTES: u32 = 96;

/// One device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SysfsDevice {
    /// Its name, as `rdma link` shows it.
    pub name: String,
    /// Its ports, in order.
    pub ports: Vec<SysfsPort>,
    /// The file by which programs reach it, where there is one.
    pub file: Option<PathBuf>,
}

/// One port of a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SysfsPort {
    /// Its number, from 1.
    pub number: u8,
    /// Its state in the kernel's word: "ACTIVE" carries packets.
    pub state: String,
    /// "Ethernet" for RoCE, or "`InfiniBand`".
    pub link_layer: String,
    /// Its speed in the kernel's words.
    pub rate: String,
    /// The network interface below, if there is one.
    pub interface: Option<String>,
    /// The addresses that packets can have as their source.
    pub gids: Vec<Gid>,
    /// Octet of DSCP and ECN that the driver puts into every packet in place of the sender's
    /// (a setting of NVIDIA's drivers).
    pub forced_class: Option<u8>,
}

/// One entry of a port's table of addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gid {
    /// Its index in the table.
    pub index: usize,
    /// The address; IPv4 addresses are mapped ones.
    pub address: Ipv6Addr,
    /// "RoCE v2" travels as UDP over IP; "IB/RoCE v1" does not.
    pub kind: String,
}

impl Gid {
    /// Whether packets from here are UDP over IP, so that switches see DSCP and ECN.
    pub fn is_routable(&self) -> bool {
        self.kind == "RoCE v2"
    }
}

/// Priorities for which the NIC's own congestion control is on (NVIDIA's drivers, DCQCN). It slows
/// connected queue pairs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NicCongestionControl {
    /// Priorities whose marked packets the NIC answers with notifications.
    pub notifies: Vec<u8>,
    /// Priorities that slow down on such a notification.
    pub reacts: Vec<u8>,
}

/// All RDMA devices of the system whose root folder is `root`, by name.
pub fn devices(root: &Path) -> Vec<SysfsDevice> {
    let mut names = entries(&root.join(DEVICES));
    names.sort_unstable();
    let device = |name: String| {
        let folder = root.join(DEVICES).join(&name);
        let mut numbers: Vec<u8> = entries(&folder.join("ports"))
            .iter()
            .filter_map(|number| number.parse().ok())
            .collect();
        numbers.sort_unstable();
        let ports = numbers.into_iter().map(|number| port(&folder, number));
        SysfsDevice {
            ports: ports.collect(),
            file: file_of(root, &name),
            name,
        }
    };
    names.into_iter().map(device).collect()
}

/// Whether this process may use the device behind this file.
///
/// # Errors
/// The system's error, if it may not.
pub fn access(file: &Path) -> io::Result<()> {
    let opened = OpenOptions::new().read(true).write(true).open(file);
    opened.map(|_| ())
}

/// Bytes of a packet's payload over an interface of this MTU; `None` if not even 256 fit.
pub fn payload(interface_mtu: u32) -> Option<u32> {
    let fits = |bytes: &u32| bytes + HEADER_BYTES <= interface_mtu;
    [4_096, 2_048, 1_024, 512, 256].into_iter().find(fits)
}

/// The NIC's own congestion control on an interface; `None` if its driver does not show it.
pub fn own_control(root: &Path, interface: &str) -> Option<NicCongestionControl> {
    let folder = root.join("sys/class/net").join(interface).join("ecn");
    let enabled = |side: &str| {
        let folder = folder.join(side).join("enable");
        let is_on = |priority: &u8| word(&folder.join(priority.to_string())) == "1";
        folder.is_dir().then(|| (0..8).filter(is_on).collect())
    };
    Some(NicCongestionControl {
        notifies: enabled("roce_np")?,
        reacts: enabled("roce_rp")?,
    })
}

fn port(device: &Path, number: u8) -> SysfsPort {
    let folder = device.join("ports").join(number.to_string());
    // "4: ACTIVE".
    let state = word(&folder.join("state"));
    let state = state.split_once(": ").map_or(&*state, |(_, state)| state);
    let attributes = folder.join("gid_attrs");
    let forced = word(&device.join(format!("tc/{number}/traffic_class")));
    let forced = forced
        .lines()
        .find_map(|line| line.strip_prefix("Global tclass="));
    SysfsPort {
        number,
        state: state.to_owned(),
        link_layer: word(&folder.join("link_layer")),
        rate: word(&folder.join("rate")),
        interface: interface_of(device, &attributes),
        gids: gids(&folder.join("gids"), &attributes),
        forced_class: forced.and_then(|octet| octet.trim().parse().ok()),
    }
}

fn gids(folder: &Path, attributes: &Path) -> Vec<Gid> {
    let addresses = (0..GIDS_MAX).map_while(|index| {
        let text = fs::read_to_string(folder.join(index.to_string())).ok()?;
        Some((index, text.trim().parse::<Ipv6Addr>().ok()?))
    });
    let used = addresses.filter(|(_, address)| !address.is_unspecified());
    used.map(|(index, address)| Gid {
        index,
        address,
        kind: word(&attributes.join("types").join(index.to_string())),
    })
    .collect()
}

/// The interface of a port: that of one of its GIDs, or the one that the driver names (`device/net`
/// of a NIC, `parent` of Soft-RoCE).
fn interface_of(device: &Path, attributes: &Path) -> Option<String> {
    let folder = attributes.join("ndevs");
    let of_gid = (0..GIDS_MAX)
        .map_while(|index| {
            let file = folder.join(index.to_string());
            // An entry without an address is a file that cannot be read.
            file.exists().then(|| word(&file))
        })
        .find(|name| !name.is_empty());
    let of_nic = || entries(&device.join("device/net")).into_iter().min();
    let of_software = || Some(word(&device.join("parent"))).filter(|name| !name.is_empty());
    of_gid.or_else(of_nic).or_else(of_software)
}

/// The device's file: the `/dev/infiniband/uverbs*` that the kernel lists for it.
fn file_of(root: &Path, device: &str) -> Option<PathBuf> {
    let class = root.join("sys/class/infiniband_verbs");
    let found = entries(&class)
        .into_iter()
        .find(|name| word(&class.join(name).join("ibdev")) == device)?;
    Some(root.join("dev/infiniband").join(found))
}

fn entries(folder: &Path) -> Vec<String> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// The text of a small file; empty if it cannot be read.
fn word(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up system, removed at the end.
    struct MadeSystem(PathBuf);

    impl MadeSystem {
        fn new(name: &str) -> Self {
            let name = format!("gradwire-rdma-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn with(self, file: &str, text: &str) -> Self {
            let path = self.0.join(file);
            let folder = path.parent().expect("a file is in a folder");
            fs::create_dir_all(folder).expect("the folder is writable");
            fs::write(path, text).expect("the folder is writable");
            self
        }

        /// The files of one device.
        fn device(self, name: &str, files: &[(&str, &str)]) -> Self {
            files.iter().fold(self, |system, (file, text)| {
                system.with(&format!("sys/class/infiniband/{name}/{file}"), text)
            })
        }
    }

    impl Drop for MadeSystem {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn nic() -> MadeSystem {
        let files = [
            ("ports/1/state", "4: ACTIVE\n"),
            ("ports/1/link_layer", "Ethernet\n"),
            ("ports/1/rate", "100 Gb/sec (4X EDR)\n"),
            (
                "ports/1/gids/0",
                "fe80:0000:0000:0000:0000:0000:0000:0001\n",
            ),
            (
                "ports/1/gids/1",
                "fe80:0000:0000:0000:0000:0000:0000:0001\n",
            ),
            (
                "ports/1/gids/2",
                "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
            ),
            (
                "ports/1/gids/3",
                "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
            ),
            (
                "ports/1/gids/4",
                "0000:0000:0000:0000:0000:0000:0000:0000\n",
            ),
            ("ports/1/gid_attrs/types/0", "IB/RoCE v1\n"),
            ("ports/1/gid_attrs/types/1", "RoCE v2\n"),
            ("ports/1/gid_attrs/types/2", "IB/RoCE v1\n"),
            ("ports/1/gid_attrs/types/3", "RoCE v2\n"),
            ("ports/1/gid_attrs/ndevs/0", "eth2\n"),
            ("tc/1/traffic_class", "Global tclass=106\n"),
        ];
        MadeSystem::new("nic")
            .device("mlx5_0", &files)
            .with("sys/class/infiniband_verbs/uverbs3/ibdev", "mlx5_0\n")
            .with("sys/class/infiniband_verbs/abi_version", "6\n")
            .with("dev/infiniband/uverbs3", "")
    }

    #[test]
    fn a_nic_is_read_with_its_addresses_interface_and_file() {
        let system = nic();
        let [device] = &devices(&system.0)[..] else {
            panic!("one device: {:?}", devices(&system.0));
        };
        let [port] = &device.ports[..] else {
            panic!("one port: {device:?}");
        };
        assert_eq!((&*device.name, port.number), ("mlx5_0", 1));
        assert_eq!((&*port.state, &*port.link_layer), ("ACTIVE", "Ethernet"));
        assert_eq!(port.rate, "100 Gb/sec (4X EDR)");
        assert_eq!(port.interface.as_deref(), Some("eth2"));
        assert_eq!(port.forced_class, Some(106));
        let routable = |gid: &&Gid| gid.is_routable();
        let routable: Vec<(usize, String)> = port
            .gids
            .iter()
            .filter(routable)
            .map(|gid| (gid.index, gid.address.to_canonical().to_string()))
            .collect();
        assert_eq!(
            (port.gids.len(), routable),
            (
                4,
                vec![(1, "fe80::1".to_owned()), (3, "10.0.0.1".to_owned())]
            )
        );
        let file = device.file.as_ref().expect("a file");
        assert!(file.ends_with("dev/infiniband/uverbs3"), "{file:?}");
        assert!(access(file).is_ok());
        fs::remove_file(file).expect("it was there");
        assert!(access(file).is_err());
    }

    #[test]
    fn a_port_without_addresses_has_the_interface_that_its_driver_names() {
        let down = [("ports/1/state", "1: DOWN\n"), ("parent", "veth0\n")];
        let strange = [("ports/x/state", "4: ACTIVE\n")];
        let system = MadeSystem::new("software")
            .device("rxe0", &down)
            .device("odd", &strange);
        let found = devices(&system.0);
        let [odd, software] = &found[..] else {
            panic!("two devices, by name: {found:?}");
        };
        assert_eq!((odd.ports.len(), &odd.file), (0, &None));
        let port = &software.ports[0];
        assert_eq!((&*port.state, port.gids.len()), ("DOWN", 0));
        assert_eq!(port.interface.as_deref(), Some("veth0"));
        assert_eq!(port.forced_class, None);
    }

    #[test]
    fn a_host_without_rdma_has_no_devices() {
        assert_eq!(devices(Path::new("/nowhere")), []);
    }

    #[test]
    fn the_payload_is_what_fits_beside_the_headers() {
        for (mtu, bytes) in [
            (9_000, 4_096),
            (4_200, 4_096),
            (4_191, 2_048),
            (1_500, 1_024),
        ] {
            assert_eq!(payload(mtu), Some(bytes), "{mtu}");
        }
        assert_eq!(payload(300), None);
    }

    #[test]
    fn own_congestion_control_is_read_per_priority() {
        let side = |side: &str| format!("sys/class/net/eth2/ecn/{side}/enable");
        let system = MadeSystem::new("ecn")
            .with(&format!("{}/3", side("roce_np")), "1\n")
            .with(&format!("{}/4", side("roce_np")), "0\n")
            .with(&format!("{}/0", side("roce_rp")), "0\n");
        let told = NicCongestionControl {
            notifies: vec![3],
            reacts: vec![],
        };
        assert_eq!(own_control(&system.0, "eth2"), Some(told));
        assert_eq!(own_control(&system.0, "eth3"), None);
    }
}

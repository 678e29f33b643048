//! The fabric of a report: which links were used how much, and where packets were dropped.
//!
//! A small fabric is drawn as rows of devices with a line for each link. A large one is drawn as a
//! field of cells for each direction between two rows: a column for each switch, a cell for each of
//! its links. So every link of a thousand hosts can still be seen.

use std::collections::BTreeMap;

use gradwire_fabric::topology::{Device, Fabric};
use gradwire_netsim::results::outcome::LinkOutcome;
use gradwire_netsim::results::statistics::{dropped, place, utilisation};
use gradwire_protocol::units::Span;

use super::drawn::DrawnRun;
use gradwire_report::numbers::count;
use gradwire_report::svg::{Anchor, Drawing};

/// Hosts up to which links are lines.
const LINES_HOSTS_MAX: u32 = 1_023;
/// Width of a map in pixels.
const WIDTH: f64 = 1_140.0;
/// Room for the names of rows.
const LEFT: f64 = 108.0;
const RIGHT: f64 = 18.0;
/// Room for the legend.
const TOP: f64 = 44.0;
/// Colours of no use to full use.
const COLOURS: [(f64, f64, f64); 5] = [
    (232.0, 237.0, 243.0),
    (168.0, 203.0, 232.0),
    (79.0, 150.0, 214.0),
    (28.0, 92.0, 168.0),
    (10.0, 34.0, 80.0),
];
const DROPS: &str = "#d7263d";

/// The map of a run.
pub fn map(run: &DrawnRun) -> String {
    let over = run.time();
    if run.loaded.setup.fabric.hosts <= LINES_HOSTS_MAX {
        lines(&run.loaded.setup.fabric, &run.outcome.links, over)
    } else {
        cells(&run.loaded.setup.fabric, &run.outcome.links, over)
    }
}

/// Explains the map of a run, in words.
pub fn legend_of(run: &DrawnRun) -> &'static str {
    if run.loaded.setup.fabric.hosts <= LINES_HOSTS_MAX {
        "A line has the colour of its busier direction; a red mark is at the sending end of a link \
         whose port dropped packets."
    } else {
        "A column is a switch, always the one nearer to the hosts, a cell is one of its links in \
         one direction; red marks are at links whose port dropped packets."
    }
}

fn shade(share: f64) -> String {
    let at = share.clamp(0.0, 1.0) * (COLOURS.len() - 1) as f64;
    let low = (at.floor() as usize).min(COLOURS.len() - 2);
    let between = at - low as f64;
    let ((r0, g0, b0), (r1, g1, b1)) = (COLOURS[low], COLOURS[low + 1]);
    let mix = |from: f64, to: f64| (from + (to - from) * between).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(r0, r1), mix(g0, g1), mix(b0, b1))
}

fn legend(drawing: &mut Drawing) {
    let (left, y) = (WIDTH - RIGHT - 190.0, 12.0);
    for step in 0..38 {
        let x = left + f64::from(step) * 5.0;
        let fill = format!(r#"fill="{}""#, shade(f64::from(step) / 37.0));
        drawing.area((x, y), (5.2, 9.0), &fill, "");
    }
    drawing.text((left, y + 23.0), Anchor::Start, "tick", "0 %");
    drawing.text((left + 190.0, y + 23.0), Anchor::End, "tick", "100 % used");
    drawing.disc((left - 88.0, y + 5.0), 4.0, &mark(), "");
    drawing.text((left - 78.0, y + 9.0), Anchor::Start, "key", "drops");
}

fn mark() -> String {
    format!(r##"fill="{DROPS}" stroke="#fff" stroke-width="0.8""##)
}

/// Packets that a port and its wire lost.
pub fn lost(link: &LinkOutcome) -> u64 {
    dropped(link) + link.lost
}

fn told(fabric: &Fabric, link: &LinkOutcome, over: Span) -> String {
    format!(
        "{} to {}: {:.1} % used, {} dropped, deepest queue {:.1} kB",
        fabric.device_name(link.from),
        fabric.device_name(link.to),
        utilisation(link, over) * 100.0,
        count(lost(link)),
        link.peak_queue as f64 / 1e3
    )
}

fn height(fabric: &Fabric, device: Device) -> usize {
    match device {
        Device::Host(_) => 0,
        Device::Switch(switch) => 1 + usize::from(fabric.switches[switch as usize].tier),
    }
}

/// Where devices stand: rows from the hosts up, evenly in order of their numbers; hosts beside the
/// others of their switch.
struct Places {
    at: BTreeMap<Device, (f64, f64)>,
    rows: Vec<Vec<Device>>,
}

const ROW_GAP: f64 = 118.0;

impl Places {
    fn of(fabric: &Fabric) -> Self {
        let mut rows = vec![switch_order(fabric)];
        for switch in 0..fabric.switches.len() as u32 {
            let device = Device::Switch(switch);
            let row = height(fabric, device);
            rows.resize(rows.len().max(row + 1), Vec::new());
            rows[row].push(device);
        }
        let mut at = BTreeMap::new();
        let top = rows.len() - 1;
        for (row, devices) in rows.iter().enumerate() {
            let step = (WIDTH - LEFT - RIGHT) / devices.len().max(1) as f64;
            for (index, device) in devices.iter().enumerate() {
                let x = LEFT + (index as f64 + 0.5) * step;
                at.insert(*device, (x, TOP + 22.0 + (top - row) as f64 * ROW_GAP));
            }
        }
        Self { at, rows }
    }

    fn drawing_height(&self) -> f64 {
        TOP + 22.0 + (self.rows.len() - 1) as f64 * ROW_GAP + 24.0
    }
}

/// Hosts, those of a switch beside each other.
fn switch_order(fabric: &Fabric) -> Vec<Device> {
    let mut hosts: Vec<(u32, u32)> = Vec::new();
    for link in &fabric.links {
        match link.ends {
            [Device::Host(host), Device::Switch(switch)]
            | [Device::Switch(switch), Device::Host(host)] => hosts.push((switch, host)),
            _ => {}
        }
    }
    hosts.sort_unstable();
    hosts.dedup_by_key(|(_, host)| *host);
    hosts
        .into_iter()
        .map(|(_, host)| Device::Host(host))
        .collect()
}

fn lines(fabric: &Fabric, links: &[LinkOutcome], over: Span) -> String {
    let places = Places::of(fabric);
    let mut drawing = Drawing::new(WIDTH, places.drawing_height());
    legend(&mut drawing);
    // Both directions of a link are one line, of the busier one's colour; the busiest on top.
    let busier = |pair: &[LinkOutcome]| {
        pair.iter()
            .map(|link| utilisation(link, over))
            .fold(0.0, f64::max)
    };
    let mut pairs: Vec<(f64, usize, &[LinkOutcome])> = links
        .chunks_exact(2)
        .enumerate()
        .map(|(link, pair)| (busier(pair), link, pair))
        .collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let width = (900.0 / pairs.len().max(1) as f64).clamp(1.0, 2.6);
    for (share, link, pair) in &pairs {
        let colour = shade(*share);
        let style = format!(r#"data-link="{link}" stroke="{colour}" stroke-width="{width:.1}""#);
        drawing.line(places.at[&pair[0].from], places.at[&pair[0].to], &style);
    }
    for (_, _, pair) in &pairs {
        for link in pair.iter().filter(|link| lost(link) > 0) {
            drop_mark(&mut drawing, &places, link, &told(fabric, link, over));
        }
    }
    devices(&mut drawing, fabric, &places);
    drawing.element("links of the fabric by utilisation, and where packets were dropped")
}

/// A disc near the sending end of a link, larger the more was dropped.
fn drop_mark(drawing: &mut Drawing, places: &Places, link: &LinkOutcome, told: &str) {
    let ((x0, y0), (x1, y1)) = (places.at[&link.from], places.at[&link.to]);
    let along = 0.14;
    let radius = 3.2 + (lost(link) as f64).log10();
    let at = (x0 + (x1 - x0) * along, y0 + (y1 - y0) * along);
    drawing.disc(at, radius, &mark(), told);
}

fn devices(drawing: &mut Drawing, fabric: &Fabric, places: &Places) {
    for devices in &places.rows {
        let Some(&first) = devices.first() else {
            continue;
        };
        let (_, y) = places.at[&first];
        let step = (WIDTH - LEFT - RIGHT) / devices.len() as f64;
        let half = (step * 0.36).clamp(1.2, 15.0);
        let half_height = match first {
            Device::Host(_) => half.min(4.0),
            Device::Switch(_) => 8.0,
        };
        for device in devices {
            let (x, y) = places.at[device];
            let size = (2.0 * half, 2.0 * half_height);
            let style = r#"rx="2" class="device""#;
            let name = fabric.device_name(*device);
            drawing.area((x - half, y - half_height), size, style, &name);
        }
        let name = several(devices.len(), &place(fabric, first));
        drawing.text((LEFT - 14.0, y + 4.0), Anchor::End, "row", &name);
    }
}

/// A count with its noun.
pub fn several(number: usize, noun: &str) -> String {
    let ending = match noun {
        _ if number == 1 => return format!("1 {noun}"),
        "leaf" => return format!("{} leaves", count(number as u64)),
        noun if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", count(number as u64))
}

/// Height of a cell and the room above a field for its name.
const FIELD_GAP: f64 = 26.0;

fn cells(fabric: &Fabric, links: &[LinkOutcome], over: Span) -> String {
    let fields = fields(fabric, links);
    let width = WIDTH - LEFT - RIGHT;
    let rows = |field: &Field| field.columns.values().map(Vec::len).max().unwrap_or(0) as f64;
    let cell_height = |field: &Field| (64.0 / rows(field)).clamp(2.0, 9.0);
    let tall: f64 = fields
        .iter()
        .map(|field| rows(field) * cell_height(field) + FIELD_GAP)
        .sum();
    let mut drawing = Drawing::new(WIDTH, TOP + tall + 8.0);
    legend(&mut drawing);
    let mut y = TOP + 12.0;
    for field in &fields {
        let (step, tall) = (width / field.columns.len() as f64, cell_height(field));
        let gap = if step > 4.0 { 0.8 } else { 0.0 };
        let mut marks = Vec::new();
        for (column, links) in field.columns.values().enumerate() {
            for (row, (port, link)) in links.iter().enumerate() {
                let at = (LEFT + column as f64 * step, y + row as f64 * tall);
                let colour = shade(utilisation(link, over));
                let fill = format!(r#"data-port="{port}" fill="{colour}""#);
                let told = told(fabric, link, over);
                drawing.area(at, (step - gap, tall - gap.min(tall / 4.0)), &fill, &told);
                if lost(link) > 0 {
                    let middle = (at.0 + (step - gap) / 2.0, at.1 + tall / 2.0);
                    marks.push((middle, told));
                }
            }
        }
        for (at, told) in marks {
            let fill = format!(r#"fill="{DROPS}""#);
            drawing.disc(at, (step.min(tall) * 0.36).max(1.4), &fill, &told);
        }
        let middle = y + rows(field) * tall / 2.0;
        drawing.text((LEFT - 14.0, middle + 1.0), Anchor::End, "row", &field.name);
        let links: usize = field.columns.values().map(Vec::len).sum();
        let links = format!("{} links", count(links as u64));
        drawing.text((LEFT - 14.0, middle + 15.0), Anchor::End, "tick", &links);
        y += rows(field) * tall + FIELD_GAP;
    }
    drawing.element("every link of the fabric by utilisation, and where packets were dropped")
}

/// All links of one direction between two rows: for each switch nearer to the hosts its links.
struct Field<'a> {
    name: String,
    /// Each link with the number of its port.
    columns: BTreeMap<Device, Vec<(usize, &'a LinkOutcome)>>,
}

/// Fields upwards from the hosts and down again.
fn fields<'a>(fabric: &Fabric, links: &'a [LinkOutcome]) -> Vec<Field<'a>> {
    let mut fields: BTreeMap<(bool, i64, usize), Field<'a>> = BTreeMap::new();
    for (port, link) in links.iter().enumerate() {
        let (from, to) = (height(fabric, link.from), height(fabric, link.to));
        let down = from > to;
        let order = (down, if down { -(from as i64) } else { from as i64 }, to);
        let field = fields.entry(order).or_insert_with(|| Field {
            name: format!("{} to {}", place(fabric, link.from), place(fabric, link.to)),
            columns: BTreeMap::new(),
        });
        // Hosts have no column of their own: they are the links of their switch.
        let column = match (from, to) {
            (0, _) => link.to,
            (_, 0) => link.from,
            _ if down => link.to,
            _ => link.from,
        };
        field.columns.entry(column).or_default().push((port, link));
    }
    fields.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::Scenario;

    fn run(fabric: &str) -> DrawnRun {
        let scenario = Scenario::new(fabric, "permutation:20KB");
        let loaded = scenario.load().expect("both exist");
        DrawnRun::of(&scenario, loaded, &mut |_| {}).expect("they fit each other")
    }

    #[test]
    fn shades_go_from_light_to_dark() {
        assert_eq!(
            [0.0, 1.0, 7.0].map(shade),
            ["#e8edf3", "#0a2250", "#0a2250"]
        );
    }

    #[test]
    fn nouns_have_their_plural() {
        let texts = [(1, "leaf"), (2, "leaf"), (2, "switch"), (1_024, "host")];
        let texts = texts.map(|(number, noun)| several(number, noun));
        assert_eq!(texts, ["1 leaf", "2 leaves", "2 switches", "1,024 hosts"]);
    }

    #[test]
    fn a_small_fabric_has_a_line_for_each_link() {
        let text = map(&run("fat-tree:k=4@100G"));
        assert_eq!(text.matches("<line ").count(), 16 + 16 + 16);
        for name in ["16 hosts", "8 edges", "8 aggs", "4 cores"] {
            assert!(text.contains(name), "{name}");
        }
    }

    #[test]
    fn large_fabrics_have_a_cell_per_direction() {
        let run = run("leaf-spine:4x4x2@100G");
        let text = cells(&run.loaded.setup.fabric, &run.outcome.links, run.time());
        assert_eq!(text.matches(" used, ").count(), 2 * (16 + 8));
        for name in [
            "host to leaf",
            "leaf to spine",
            "spine to leaf",
            "leaf to host",
        ] {
            assert!(text.contains(name), "{name}");
        }
    }
}

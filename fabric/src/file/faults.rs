//! `[[fault]]`: links that are missing, slow or lossy, or come and go, in one direction or both.

use gradwire_protocol::job::notation;
use gradwire_protocol::job::spanned::{TomlEntry, TomlError, TomlTable};
use gradwire_protocol::units::{Instant, Rate, Share, Span};

use super::explicit::Names;
use super::form::KINDS;
use crate::settings::{self, LOSS_ALLOWED, RATE_ALLOWED};
use crate::topology::{Device, Fabric, Link, LinkChange, LinkState, LinkWay, OneWayFault};

/// Applies the faults of a file to the fabric, in their order.
pub(super) fn apply(root: &TomlTable<'_>, fabric: &mut Fabric) -> Result<(), TomlError> {
    let names = Names::of(&fabric.switches);
    let mut failed = vec![false; fabric.links.len()];
    for table in root.tables("fault")? {
        let advice = "write link = \"host 5\", or two names with ` - ` or ` -> `";
        let entry = table.required("link", advice)?;
        let links = affected(fabric, &names, &entry)?;
        let kind = table.required("kind", "write failed, degraded, gray or flap")?;
        match kind.read(KINDS, |text| KINDS.split(", ").find(|kind| *kind == text))? {
            "failed" => {
                table.only(&["link", "kind"])?;
                for (link, way) in links {
                    match way {
                        LinkWay::Both => failed[link] = true,
                        // The other direction is still there.
                        _ => fabric.changes.push(LinkChange {
                            at: Instant::START,
                            link: link as u32,
                            way,
                            state: LinkState::Down,
                        }),
                    }
                }
            }
            "degraded" => {
                table.only(&["link", "kind", "rate"])?;
                let entry =
                    table.required("rate", "write rate = \"10G\", the rate that is left")?;
                let rate = entry.read(RATE_ALLOWED, settings::rate)?;
                links
                    .iter()
                    .for_each(|&at| weaken(fabric, at, Some(rate), None));
            }
            "gray" => {
                table.only(&["link", "kind", "loss"])?;
                let entry = table.required("loss", "write loss = \"0.1%\"")?;
                let loss = entry.read(LOSS_ALLOWED, settings::loss)?;
                links
                    .iter()
                    .for_each(|&at| weaken(fabric, at, None, Some(loss)));
            }
            _ => flap(&table, &entry, fabric, &links)?,
        }
    }
    fabric.changes.sort_by_key(|change| change.at);
    remove(fabric, &failed);
    Ok(())
}

/// Gives a link, or a direction of it, another rate or loss.
fn weaken(
    fabric: &mut Fabric,
    (link, way): (usize, LinkWay),
    rate: Option<Rate>,
    loss: Option<Share>,
) {
    let whole = &mut fabric.links[link];
    match way {
        LinkWay::Both => {
            whole.rate = rate.unwrap_or(whole.rate);
            whole.loss = loss.unwrap_or(whole.loss);
        }
        LinkWay::Forth | LinkWay::Back => fabric.one_way.push(OneWayFault {
            link: link as u32,
            way,
            rate,
            loss,
        }),
    }
}

/// Lets links come and go.
fn flap(
    table: &TomlTable<'_>,
    entry: &TomlEntry<'_>,
    fabric: &mut Fabric,
    links: &[(usize, LinkWay)],
) -> Result<(), TomlError> {
    table.only(&["link", "kind", "down_at", "up_at"])?;
    let flaps = flaps(table)?;
    let flaps_already = |&(link, way): &(usize, LinkWay)| {
        let mut changes = fabric.changes.iter();
        changes.any(|change| {
            change.link as usize == link && (change.way.has(way) || way.has(change.way))
        })
    };
    if links.iter().any(flaps_already) {
        return Err(entry.refused("links of no earlier flap; write all times there"));
    }
    for &(link, way) in links {
        let link = link as u32;
        let changes = flaps.iter().map(|&(at, state)| LinkChange {
            at,
            link,
            way,
            state,
        });
        fabric.changes.extend(changes);
    }
    Ok(())
}

/// The links that a fault affects, and their directions.
fn affected(
    fabric: &Fabric,
    names: &Names,
    entry: &TomlEntry<'_>,
) -> Result<Vec<(usize, LinkWay)>, TomlError> {
    let allowed = "`host 5`, or two names with ` - ` between them, such as `edge 0.0 - agg 0.1`, \
                   or with ` -> ` for the direction from the first to the second";
    let (ends, one_way) = entry.read(allowed, |text| {
        let directed = text.split_once(" -> ");
        let ends = match directed.or_else(|| text.split_once(" - ")) {
            Some((from, to)) => {
                Some(vec![names.find(from)?, names.find(to)?]).filter(|ends| ends[0] != ends[1])
            }
            None => match names.find(text)? {
                host @ Device::Host(_) => Some(vec![host]),
                Device::Switch(_) => None,
            },
        };
        Some((ends?, directed.is_some()))
    })?;
    let links = fabric.links.iter().enumerate();
    let links = links.filter(|(_, link)| ends.iter().all(|end| link.ends.contains(end)));
    let way = |link: &Link| match one_way {
        false => LinkWay::Both,
        true if link.ends[0] == ends[0] => LinkWay::Forth,
        true => LinkWay::Back,
    };
    let found: Vec<(usize, LinkWay)> = links.map(|(index, link)| (index, way(link))).collect();
    if found.is_empty() {
        return Err(entry.refused(&format!(
            "links that there are; {}",
            around(fabric, ends[0])
        )));
    }
    Ok(found)
}

/// The devices that a device is linked to, in words.
fn around(fabric: &Fabric, device: Device) -> String {
    let ends = fabric.links.iter().filter_map(|link| match link.ends {
        [near, far] if near == device => Some(far),
        [far, near] if near == device => Some(far),
        _ => None,
    });
    let mut ends: Vec<Device> = ends.collect();
    ends.dedup();
    let hidden = ends.len().saturating_sub(NAMES_MAX);
    let mut listed: Vec<String> = ends
        .iter()
        .take(NAMES_MAX)
        .map(|end| fabric.device_name(*end))
        .collect();
    if hidden > 0 {
        listed.push(format!("{hidden} more"));
    }
    match listed.is_empty() {
        true => format!("there is no {}", fabric.device_name(device)),
        false => format!(
            "{} is linked to {}",
            fabric.device_name(device),
            listed.join(", ")
        ),
    }
}

/// The maximum number of names in an error.
const NAMES_MAX: usize = 16;

/// When the links of a flap go down and come up again.
fn flaps(table: &TomlTable<'_>) -> Result<Vec<(Instant, LinkState)>, TomlError> {
    let times = |entry: &TomlEntry<'_>| {
        let list = entry.list().into_iter();
        let read = |text: &str| notation::span(text);
        let times = list.map(|entry| entry.read("times such as \"5ms\"", read));
        times.collect::<Result<Vec<Span>, TomlError>>()
    };
    let down = table.required("down_at", "write down_at = \"5ms\"")?;
    let up = table.get("up_at");
    let down_at = times(&down)?;
    let up_at = up.as_ref().map_or_else(|| Ok(Vec::new()), times)?;
    let mut changes: Vec<(Instant, LinkState)> = Vec::new();
    for (turn, &at) in down_at.iter().enumerate() {
        changes.push((Instant::START + at, LinkState::Down));
        changes.extend(
            up_at
                .get(turn)
                .map(|&at| (Instant::START + at, LinkState::Up)),
        );
    }
    let paired = up_at.len() == down_at.len() || up_at.len() + 1 == down_at.len();
    if down_at.is_empty() || !paired || !changes.is_sorted_by(|one, next| one.0 < next.0) {
        let rule = "ascending times, each followed by one of `up_at`, the last one perhaps by none";
        return Err(down.refused(rule));
    }
    Ok(changes)
}

/// Takes the failed links out.
fn remove(fabric: &mut Fabric, failed: &[bool]) {
    let mut left = 0;
    let numbers: Vec<Option<u32>> = failed
        .iter()
        .map(|failed| {
            let number = (!failed).then_some(left);
            left += u32::from(!failed);
            number
        })
        .collect();
    let mut keep = failed.iter().map(|failed| !failed);
    fabric.links.retain(|_| keep.next() == Some(true));
    let renumber = |link: &mut u32| {
        let number = numbers[*link as usize];
        *link = number.unwrap_or_default();
        number.is_some()
    };
    fabric
        .changes
        .retain_mut(|change| renumber(&mut change.link));
    fabric.one_way.retain_mut(|fault| renumber(&mut fault.link));
}

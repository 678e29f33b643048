//! Reports in a browser: the script of a page, run by Chromium where it is installed.

use std::path::Path;
use std::process::Command;

use crate::processes::{errors, folder, run};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// It asks no server, keeps nothing, and runs as root, too.
const QUIETLY: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--dump-dom",
];

/// The page as it is after its script has run; `None` without a browser.
fn rendered(page: &Path, address: &str, profile: &Path) -> Option<String> {
    let address = format!("file://{}{address}", page.display());
    let profile = format!("--user-data-dir={}", profile.display());
    let browser = BROWSERS.into_iter().find_map(|browser| {
        let mut command = Command::new(browser);
        command.args(QUIETLY).args([&profile, &address]);
        command.output().ok()
    })?;
    assert!(browser.status.success(), "{}", errors(&browser));
    Some(String::from_utf8_lossy(&browser.stdout).into_owned())
}

/// The text of the first element of this class.
fn text_of<'a>(page: &'a str, opening: &str) -> &'a str {
    let (_, rest) = page.split_once(opening).expect("the element is there");
    let (_, rest) = rest.split_once('>').expect("its tag ends");
    rest.split('<').next().unwrap_or_default()
}

#[test]
fn readers_explore_a_report_in_a_browser() {
    let folder = folder("explored");
    let (page, profile) = (folder.join("report.html"), folder.join("profile"));
    let words = [
        "sim",
        "report",
        "leaf-spine:2x2x2@100G",
        "permutation:100KB",
    ];
    let out = ["--transports", "gradwire,ndp", "--out"];
    let output = run(&[&words[..], &out, &[page.to_str().expect("a text")]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let Some(plain) = rendered(&page, "", &profile) else {
        eprintln!("left out: no browser (Debian's package chromium)");
        return;
    };
    assert_eq!(text_of(&plain, "<output"), "(the whole run is shown)");
    assert_eq!(text_of(&plain, "class=\"shown\""), "");
    // Four flows each, and the choice of none.
    assert_eq!(plain.matches("<option ").count(), 2 * 5);
    let chosen = "#run=gradwire&frame=1&link=0&message=0";
    let explored = rendered(&page, chosen, &profile).expect("it was there before");
    let shown = text_of(&explored, "class=\"shown\"");
    assert!(shown.starts_with("flow "), "{shown}");
    assert!(shown.contains("queue now"), "{shown}");
    assert!(text_of(&explored, "<output").contains(" us; the darkest is "));
    let links = explored.matches("class=\"followed").count();
    assert!(
        shown.contains(&format!("may take {links} links")),
        "{shown}"
    );
    // What an address may hold: other runs, numbers that are too large, no numbers.
    let wrong = "#run=gradwire&frame=999999&link=99&message=x";
    let taken = rendered(&page, wrong, &profile).expect("it was there before");
    assert_eq!(text_of(&taken, "class=\"shown\""), "");
}

//! Judges a configuration by the platform's own schema, with a program that is not ours.
//!
//! Start here: [`validate`] asks the validator of a platform, or names the package that must be
//! installed for it. `yanglint` is Debian's; `nvue` and others are scripts for Python packages. Our
//! own rules are in `gradwire-switch-config` and need no such program.

pub mod validation;
mod yanglint;

use std::io::Write as _;
use std::process::{Command, Stdio};

use gradwire_switch_config::dialect::{junos, openconfig, sonic};
use gradwire_switch_config::target::{Platform, SwitchTarget};
use validation::Validation;

/// Judges NVUE in YAML on standard input; see [`ask_python`].
const NVUE: &str = include_str!("schema/nvue.py");
/// The same for the lines of EOS.
const EOS: &str = include_str!("schema/eos.py");

/// The verdict of a platform's validator on a configuration.
pub fn validate(target: SwitchTarget, text: &str) -> Validation {
    match target.platform {
        Platform::Sonic => yanglint::validate(&yanglint::SONIC, sonic::yang::document(text)),
        Platform::OpenConfig => {
            yanglint::validate(&yanglint::OPENCONFIG, openconfig::yang::document(text))
        }
        Platform::Junos => yanglint::validate(&yanglint::JUNOS, junos::yang::document(text)),
        Platform::Nvue => ask_python("nvueschema", target, NVUE, text),
        Platform::Eos => ask_python("pyavd", target, EOS, text),
        Platform::Nxos | Platform::Linux => Validation::Missing {
            install: format!("no program is known that judges {target} offline"),
        },
    }
}

/// Asks a script for Python. It gets the version of the platform as its argument and the
/// configuration on standard input; it ends with 0 when that is accepted, with 1 when it is not
/// (each line of standard output is a reason), and with 3 when its package is not installed.
fn ask_python(package: &str, target: SwitchTarget, script: &str, text: &str) -> Validation {
    let tool = format!("{package}, {target}");
    let missing = || Validation::Missing {
        install: format!("{package} for python3: pip install {package}"),
    };
    let mut command = Command::new("python3");
    command.args(["-c", script, target.version]);
    let Ok((code, output)) = answer(&mut command, text) else {
        return missing();
    };
    let messages = || output.lines().map(str::to_owned).collect();
    match code {
        Some(0) => Validation::Accepted { tool },
        Some(1) => Validation::Rejected {
            tool,
            messages: messages(),
        },
        Some(3) => missing(),
        _ => Validation::Missing {
            install: format!("a {package} that works: {output}"),
        },
    }
}

/// The exit code of a program, and its standard output; when that is empty, the last line of
/// standard error.
fn answer(command: &mut Command, input: &str) -> std::io::Result<(Option<i32>, String)> {
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = process.stdin.take() {
        // A program that has seen enough stops reading.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = process.wait_with_output()?;
    let told = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().unwrap_or_default().to_owned();
    let told = if told.is_empty() { last } else { told };
    Ok((output.status.code(), told))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(script: &str) -> Validation {
        let target = SwitchTarget::read("nvue:5.14").expect("it is known");
        ask_python("some-package", target, script, "a: 1\n")
    }

    #[test]
    fn a_script_accepts_refuses_or_lacks_its_package() {
        if Command::new("python3").arg("-V").output().is_err() {
            eprintln!("left out: python3 is not installed");
            return;
        }
        let tool = "some-package, nvue:5.14".to_owned();
        let reads = "import sys; assert sys.argv[1] == '5.14' and sys.stdin.read() == 'a: 1\\n'";
        assert_eq!(python(reads), Validation::Accepted { tool: tool.clone() });
        let messages = vec!["one".to_owned(), "two".to_owned()];
        assert_eq!(
            python("print('one'); print('two'); raise SystemExit(1)"),
            Validation::Rejected { tool, messages }
        );
        let install = "some-package for python3: pip install some-package".to_owned();
        assert_eq!(
            python("raise SystemExit(3)"),
            Validation::Missing { install }
        );
        let install = "a some-package that works: broken".to_owned();
        assert_eq!(
            python("import sys; sys.stderr.write('broken'); sys.exit(9)"),
            Validation::Missing { install }
        );
    }
}

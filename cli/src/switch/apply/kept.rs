//! What is known of a namespace that was set up, from one command to the next: a folder of `/run`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::exit::CommandError;

/// Where folders of namespaces are.
const FOLDER: &str = "/run/gradwire";

/// What was set up.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Kept {
    /// Whether the namespace was made, and not only what is in it.
    pub made: bool,
    /// Whether there is a bridge of ours.
    pub bridge: bool,
    /// Ports that have queues.
    pub ports: Vec<String>,
    /// The command that exports configuration and counters.
    pub export: String,
}

/// The folder of a namespace, by its name.
#[derive(Clone, Debug)]
pub struct KeptFolder {
    path: PathBuf,
}

impl KeptFolder {
    /// Of the namespace of this name; nothing is made.
    pub fn of(name: &str) -> Self {
        Self {
            path: Path::new(FOLDER).join(name),
        }
    }

    /// Where bpffs is mounted for it.
    pub fn bpffs(&self) -> PathBuf {
        self.path.join("bpf")
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// [`CommandError::System`] where it cannot be made.
    pub fn make(&self) -> Result<(), CommandError> {
        std::fs::create_dir_all(self.bpffs()).map_err(|source| self.system("make", source))
    }

    /// What was set up; `None` where nothing was.
    pub fn read(&self) -> Option<Kept> {
        let text = std::fs::read_to_string(self.path.join("kept.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Keeps what was set up.
    ///
    /// # Errors
    /// [`CommandError::System`] where it cannot be written.
    pub fn write(&self, kept: &Kept) -> Result<(), CommandError> {
        let text = serde_json::to_string(kept).expect("names are text");
        let written = std::fs::write(self.path.join("kept.json"), text);
        written.map_err(|source| self.system("write into", source))
    }

    /// Takes the folder away, and what is mounted there.
    ///
    /// # Errors
    /// [`CommandError::System`] where it cannot be removed.
    pub fn remove(&self) -> Result<(), CommandError> {
        // Nothing is mounted where no program was loaded; then this fails, and that is fine.
        let mut command = Command::new("umount");
        let _ = command.arg(self.bpffs()).output();
        match std::fs::remove_dir_all(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(self.system("remove", source))
            }
            _ => Ok(()),
        }
    }

    fn system(&self, verb: &str, source: io::Error) -> CommandError {
        CommandError::System {
            what: format!("{verb} {}", self.path.display()),
            source,
        }
    }
}

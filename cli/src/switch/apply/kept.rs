//! The memory of a namespace that was set up, from one command to the next: a folder of `/run`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use gradwire_lab::error::LabError;
use serde::{Deserialize, Serialize};

/// Where folders of namespaces are.
const FOLDER: &str = "/run/gradwire";

/// The parts that were set up.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Kept {
    /// Whether the namespace itself was made, and not only its content.
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
    /// The folder for the namespace of this name, which need not exist.
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
    /// [`LabError::System`] where it cannot be made.
    pub fn make(&self) -> Result<(), LabError> {
        std::fs::create_dir_all(self.bpffs()).map_err(|source| self.system("make", source))
    }

    /// The parts that were set up; `None` where there is no folder.
    pub fn read(&self) -> Option<Kept> {
        let text = std::fs::read_to_string(self.path.join("kept.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes down the parts that were set up.
    ///
    /// # Errors
    /// [`LabError::System`] where it cannot be written.
    pub fn write(&self, kept: &Kept) -> Result<(), LabError> {
        let text = serde_json::to_string(kept).expect("names are text");
        let written = std::fs::write(self.path.join("kept.json"), text);
        written.map_err(|source| self.system("write into", source))
    }

    /// Removes the folder, and the mounts in it.
    ///
    /// # Errors
    /// [`LabError::System`] where it cannot be removed.
    pub fn remove(&self) -> Result<(), LabError> {
        // Without a loaded program there is no mount; then this fails, which is fine.
        let mut command = Command::new("umount");
        let _ = command.arg(self.bpffs()).output();
        match std::fs::remove_dir_all(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(self.system("remove", source))
            }
            _ => Ok(()),
        }
    }

    fn system(&self, verb: &str, source: io::Error) -> LabError {
        LabError::system(format!("{verb} {}", self.path.display()))(source)
    }
}

//! Files that are there whole or not at all.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::LabError;

/// A file that is being written under another name beside its place. Dropped without
/// [`WholeFile::keep`], it is removed.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
}

impl WholeFile {
    /// Begins a file; this fails at once where the place cannot be written to, before anything was
    /// simulated for it.
    ///
    /// # Errors
    /// [`LabError::System`] names the file and the system's reason.
    pub fn create(path: &Path) -> Result<Self, LabError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = path.with_file_name(name);
        let file = File::create(&part).map_err(|source| cannot_write(path, source))?;
        Ok(Self {
            path: path.to_owned(),
            part,
            file,
        })
    }

    /// Writes all of it and puts it in its place.
    ///
    /// # Errors
    /// [`LabError::System`] names the file and the system's reason; the file that was at the place
    /// before is kept.
    pub fn keep(mut self, bytes: &[u8]) -> Result<(), LabError> {
        let written = self.file.write_all(bytes);
        let written = written.and_then(|()| self.file.sync_all());
        let placed = written.and_then(|()| std::fs::rename(&self.part, &self.path));
        placed.map_err(|source| cannot_write(&self.path, source))
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        // After a rename this name is gone, which is no problem.
        let _ = std::fs::remove_file(&self.part);
    }
}

fn cannot_write(path: &Path, source: std::io::Error) -> LabError {
    LabError::system(format!("cannot write {}", path.display()))(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_files_leave_no_trace() {
        let folder = std::env::temp_dir().join(format!("gradwire-whole-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
        let path = folder.join("report.html");
        let kept = WholeFile::create(&path).and_then(|file| file.keep(b"first"));
        kept.expect("it can be written");
        drop(WholeFile::create(&path).expect("it can be begun again"));
        assert_eq!(std::fs::read(&path).expect("it is there"), b"first");
        let files = std::fs::read_dir(&folder).expect("it is a folder").count();
        assert_eq!(files, 1);
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn unwritable_places_are_named_at_once() {
        let error = WholeFile::create(Path::new("/nowhere/report.html")).expect_err("no folder");
        let said = error.to_string();
        assert!(
            said.starts_with("cannot write /nowhere/report.html: "),
            "{said}"
        );
    }
}

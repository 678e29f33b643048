//! Judging documents by the models of a platform, with two programs that are not ours.
//!
//! [`Models`] is a folder of YANG files, loaded into libyang (built from the crate `yang3`), and
//! given to Debian's `yanglint` where that is installed. A document is JSON as RFC 7951 has it. The
//! tests beside this file, one per platform, are all that uses it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use yang3::context::{Context, ContextFlags};
use yang3::data::{DataFormat, DataParserFlags, DataTree, DataValidationFlags};

/// The models of a platform.
pub struct Models {
    folder: PathBuf,
    modules: Vec<String>,
    loaded: Context,
    yanglint: bool,
}

/// The answers of the two programs to a document: accepted, or why not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CounterVerdict {
    /// libyang 3.
    pub libyang: Result<(), String>,
    /// Debian's yanglint, on libyang 2; `None` where it is not installed.
    pub yanglint: Option<Result<(), String>>,
}

impl Models {
    /// Loads modules of `yang/PLATFORM`, in this order. Those that they import are found there.
    ///
    /// # Panics
    /// When a model cannot be loaded: it says which, and why.
    pub fn load(platform: &str, modules: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("yang")
            .join(platform);
        let mut loaded = Context::new(ContextFlags::NO_YANGLIBRARY).expect("libyang starts");
        loaded
            .set_searchdir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for module in modules {
            let found = loaded.load_module(module, None, &[]);
            found.unwrap_or_else(|error| panic!("{module}: {error:?}"));
        }
        Self {
            folder,
            modules: modules.iter().map(|&module| module.to_owned()).collect(),
            loaded,
            yanglint: has_yanglint(),
        }
    }

    /// The answers of both programs to a document.
    pub fn judge(&self, document: &str) -> CounterVerdict {
        CounterVerdict {
            libyang: self.by_libyang(document),
            yanglint: self.yanglint.then(|| self.by_yanglint(document)),
        }
    }

    /// The answer of both, when it is the same: `Err` has the reasons of libyang.
    ///
    /// # Panics
    /// When one accepts a document that the other refuses.
    pub fn judge_alike(&self, document: &str) -> Result<(), String> {
        let CounterVerdict { libyang, yanglint } = self.judge(document);
        if let Some(yanglint) = yanglint {
            assert_eq!(
                libyang.is_ok(),
                yanglint.is_ok(),
                "libyang says {libyang:?}, yanglint {yanglint:?}, of\n{document}"
            );
        }
        libyang
    }

    /// The answer of libyang 3 alone, which takes no process: for many documents.
    pub fn by_libyang(&self, document: &str) -> Result<(), String> {
        let parsed = DataTree::parse_string(
            &self.loaded,
            document,
            DataFormat::JSON,
            DataParserFlags::STRICT,
            DataValidationFlags::NO_STATE,
        );
        let refusal = |error: yang3::Error| {
            let path = error.path.clone().unwrap_or_default();
            format!("{error} {path}").trim_end().to_owned()
        };
        parsed.map(drop).map_err(refusal)
    }

    fn by_yanglint(&self, document: &str) -> Result<(), String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gradwire-schemas-{}-{number}.json", process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, document).expect("the folder for temporary files takes one");
        let files = self
            .modules
            .iter()
            .map(|module| self.folder.join(format!("{module}.yang")));
        let mut command = Command::new("yanglint");
        command.arg("-p").arg(&self.folder).args(["-t", "config"]);
        let output = command.args(files).arg(&path).output();
        fs::remove_file(&path).expect("it was written just now");
        let output = output.expect("it was found when the models were loaded");
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}

fn has_yanglint() -> bool {
    let found = Command::new("yanglint").arg("--version").output().is_ok();
    if !found {
        eprintln!("left out: yanglint is not installed (Debian: libyang2-tools)");
    }
    found
}

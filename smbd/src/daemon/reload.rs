//! Brings a configuration into force while the server runs.
//!
//! One at a time: the file and the users are read and checked, the mark of the running server names the folders, new
//! file systems are probed, and the service takes it all, or nothing. The first two steps happen on threads that may
//! wait for a disk; shares that are late are taken in meanwhile.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use smb_auth::UserDb;
use tokio::sync::{Mutex, Semaphore};

use super::Front;
use crate::{
    Error,
    accounts::users,
    answers::{AppliedConfig, Reloaded},
    config::{self, Config, places},
    host::sandbox,
    service::{Applied, ApplyReason, Service},
    state::recovery,
};

/// How often a reload checks whether a new share's folder has answered.
const ASKED_AGAIN: Duration = Duration::from_millis(20);

/// How long a reload waits for the disks of the configuration, of the users, or of the state folder.
const DISK_MAX: Duration = Duration::from_secs(30);

/// Steps of reloads whose disks may hang at once, each on a thread; beyond them a reload fails at once.
const STEPS_MAX: usize = 8;

pub(super) fn with_places() -> Mutex<Arc<Semaphore>> {
    Mutex::new(Arc::new(Semaphore::new(STEPS_MAX)))
}

impl<S: Service> Front<S> {
    pub(super) async fn reload(&self) -> Result<Reloaded, Error> {
        self.bring_into_force().await?.stable().await
    }

    /// Reads the configuration and the users again: they are in force when this returns.
    pub(super) async fn bring_into_force(&self) -> Result<ReloadInForce, Error> {
        let file = self.config_file.clone().ok_or(
            "this server was started without a configuration file: there is nothing to reload\n  = stop it, and start \
             it with other arguments or with --config FILE",
        )?;
        let places = self.reloading.lock().await;
        let (old, sandbox) = (self.config(), self.sandbox.clone());
        let read = move || read_again(&file, &old, &sandbox);
        let read = in_time(
            &places,
            "the configuration, the user file or a share",
            DISK_MAX,
            read,
        );
        let (config, users, needs_restart) = read.await?;
        let needs_restart = needs_restart.into_iter().map(str::to_owned).collect();
        let shares = config.shares.iter();
        let folders: Vec<_> = shares.map(|share| share.path.clone()).collect();
        let (mark, wanted) = (Arc::clone(&self.mark), folders.clone());
        let name = move || Ok(mark.name(wanted.iter().map(PathBuf::as_path))?);
        in_time(&places, "the state folder", DISK_MAX, name).await?;
        // Until here disks may have hung. Shares that were late may have been taken in meanwhile, which changes nothing
        // of what was read.
        let _applying = self.applying.lock().await;
        self.ask_new(&config).await?;
        let applied = self
            .put_into_force(config, users, ApplyReason::Reload)
            .await;
        if applied.is_err() {
            // Folders that only this configuration has would be probed for ever, and stay unsynced.
            self.late.keep_only(&self.config());
        }
        let applied = applied?;
        self.mark.serve(folders.iter().map(PathBuf::as_path));
        self.changes.forget();
        Ok(ReloadInForce {
            applied,
            needs_restart,
        })
    }

    /// Probes the file systems that have failed, and after an unclean end those of the shares that a reload adds. One
    /// that does not answer in time stays late. The caller must hold [`Front::applying`].
    async fn ask_new(&self, new: &Config) -> Result<(), Error> {
        let asked = self.late.ask_new(&self.config(), new)?;
        let start = Instant::now();
        while start.elapsed() < recovery::ANSWER_MAX {
            if self.late.have_answered(&asked)? {
                return Ok(());
            }
            tokio::time::sleep(ASKED_AGAIN).await;
        }
        tracing::error!(
            ?asked,
            "a file system does not answer: its shares are refused until it does"
        );
        Ok(())
    }

    /// Brings a configuration into force, except for shares that are late. The caller must hold [`Front::applying`].
    pub(super) async fn put_into_force(
        &self,
        config: Config,
        users: UserDb,
        why: ApplyReason,
    ) -> Result<Applied, Error> {
        let config = Arc::new(self.late.without(config));
        let (given, known) = (Arc::clone(&config), users.clone());
        let applied = self
            .on_worker(move |service| service.apply(given, users, why))
            .await??;
        self.admission.apply(&config);
        self.late.keep_only(&config);
        self.late_again.notify_one();
        self.config.replace(config);
        self.users.replace(known);
        // A mount that does not answer must not delay a reload.
        self.look_now.notify_one();
        Ok(applied)
    }
}

/// Runs a step that waits for a disk, on a thread of its own. It may hang for ever, and later reloads, which wait for
/// this one, may take rights away.
async fn in_time<T: Send + 'static>(
    places: &Arc<Semaphore>,
    whose: &str,
    most: Duration,
    step: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let Ok(place) = Arc::clone(places).try_acquire_owned() else {
        return fail!(
            "the disks of {STEPS_MAX} earlier reloads have not answered yet\n  = `holdfast close` ends \
             what a user has open, without those disks"
        );
    };
    let step = move || {
        let _place = place;
        step()
    };
    match tokio::time::timeout(most, tokio::task::spawn_blocking(step)).await {
        Ok(done) => done?,
        Err(_) => {
            let (folders, again) = match config::unanswered() {
                Some(all) => (
                    format!("; these folders do not answer: {all}"),
                    "the next reload does not wait for these folders, and ",
                ),
                None => (String::new(), ""),
            };
            fail!(
                "the disk of {whose} has not answered for {most:?}{folders}\n  = {again}`holdfast close` ends what a \
                 user has open, without that disk"
            )
        }
    }
}

/// A reload that is in force.
pub(super) struct ReloadInForce {
    applied: Applied,
    needs_restart: Vec<String>,
}

impl ReloadInForce {
    /// The answer, once everything is on disk that was dirty under the policies that were tightened.
    pub(super) async fn stable(self) -> Result<Reloaded, Error> {
        Ok(Reloaded {
            applied: AppliedConfig {
                policies: self.applied.stable.await?,
                ..self.applied.in_force
            },
            needs_restart: self.needs_restart,
        })
    }
}

/// The configuration and the users for a reload, and the tables of the file that need a restart.
fn read_again(
    file: &Path,
    old: &Config,
    sandbox: &sandbox::SandboxReport,
) -> Result<(Config, UserDb, Vec<&'static str>), Error> {
    let served = old.shares.iter().chain(&old.late);
    let served: Vec<PathBuf> = served.map(|share| share.path.clone()).collect();
    let mut config = config::load_again(file, &served)?;
    let server = &config.server;
    let moved = server.state_dir != old.server.state_dir;
    let users_with_state = server.users_file == server.state_dir.join(places::USERS_FILE);
    let needs_restart = config::keep_until_restart(&mut config, old);
    if moved && users_with_state {
        config.server.users_file = old.server.state_dir.join(places::USERS_FILE);
    }
    if moved {
        config::check_apart(&config)?;
    }
    let users_file = &config.server.users_file;
    let users = users::load(users_file).map_err(|error| {
        // A folder that may only be read is no obstacle if the file can be read.
        match sandbox.reaches(users_file.parent()) {
            Ok(()) => error,
            Err(outside) => format!("{outside}\n{error}").into(),
        }
    })?;
    sandbox.reaches(config.shares.iter().map(|share| share.path.as_path()))?;
    Ok((config, users, needs_restart))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_hangs_ends_a_reload() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (release, hangs) = std::sync::mpsc::channel::<()>();
        let most = Duration::from_millis(50);
        let said = runtime.block_on(async {
            let places = Arc::new(Semaphore::new(1));
            assert_eq!(in_time(&places, "x", Duration::MAX, || Ok(7)).await, Ok(7));
            let hangs = move || {
                let _ = hangs.recv();
                Ok(())
            };
            let hung = in_time(&places, "x", most, hangs).await;
            [hung, in_time(&places, "x", most, || Ok(())).await]
        });
        let [hung, later] = said.map(|said| said.unwrap_err().to_string());
        assert!(hung.contains("the disk of x has not answered for 50ms"));
        assert!(later.contains("earlier reloads have not answered"));
        drop(release);
    }

    /// Many folders that hang take all the time that a reload has.
    #[test]
    fn folders_that_hang_are_named_when_a_reload_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (release, hangs) = std::sync::mpsc::channel::<()>();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let asks = move || {
            let folder = Path::new("/no/disk/there");
            assert_eq!(config::in_time(folder, move || hangs.recv().is_ok()), None);
            // The next of many folders.
            let _ = ends.recv();
            Ok(())
        };
        let said = runtime.block_on(async {
            let places = Arc::new(Semaphore::new(1));
            let most = Duration::from_secs(3);
            in_time(&places, "x", most, asks).await
        });
        let said = said.unwrap_err().to_string();
        assert!(said.contains("/no/disk/there"), "{said}");
        drop((release, end));
    }
}

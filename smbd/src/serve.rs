//! `holdfast serve`: from arguments to a [`Setup`], and the banner.
//!
//! With `--config` everything comes from the file. With folders, the port is found, the user and
//! password are made, and the banner says how to connect. The state that outlives the
//! process (latches, the mark of an unclean end) is in a folder of the port: another server on the same port has it.

use std::{
    env, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::Args;
use smb_auth::UserDb;

use crate::{
    Error,
    accounts::{
        acting,
        password::{self, Password},
        users,
    },
    commands::banner,
    config::{self, CommandLine, Config, Encryption, Listener, LocalIds, local_users, places},
    daemon::{self, Setup},
    host::sandbox,
    runtime::{listener, log},
    state::state_dir,
};

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Folders to serve; NAME=PATH names the share (default: the folder's name)
    #[arg(value_name = "[NAME=]PATH", required_unless_present = "config")]
    paths: Vec<String>,
    /// Serve what this file says; nothing else may be given then
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "share", "listen", "user",
        "password_file", "durability", "accept_loss", "encrypt", "read_only", "owner"])]
    config: Option<PathBuf>,
    /// Name of the share, where there is one folder
    #[arg(long, value_name = "NAME")]
    share: Option<String>,
    /// Where to listen (default: 127.0.0.1, this machine only)
    #[arg(long, value_name = "ADDR[:PORT]")]
    listen: Option<ListenAt>,
    /// The user who can log in (default: your name)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// First line is the password; - is standard input (default: one is made up and shown)
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Local user as whom files are read and made (default: the folder's owner where root serves
    /// it, but never root; see `id NAME`)
    #[arg(long, value_name = "UID:GID")]
    owner: Option<LocalIds>,
    /// The promise of a successful reply (default: honor); see `holdfast --help`
    #[arg(long, value_name = "POLICY")]
    durability: Option<String>,
    /// Agree to lose acknowledged writes when this machine fails
    #[arg(long)]
    accept_loss: bool,
    /// Refuse clients that do not encrypt
    #[arg(long, value_enum, value_name = "WHEN")]
    encrypt: Option<Encryption>,
    /// Nothing can be changed
    #[arg(long)]
    read_only: bool,
}

/// `--listen`: an address, with or without a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListenAt {
    /// With its scope, as in `[fe80::1%2]:4450`; its port says nothing.
    address: SocketAddr,
    port: Option<u16>,
}

impl FromStr for ListenAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self {
                address,
                port: Some(address.port()),
            });
        }
        let bare = text
            .strip_prefix('[')
            .and_then(|t| t.strip_suffix(']'))
            .unwrap_or(text);
        match bare.parse::<IpAddr>() {
            Ok(ip) => Ok(Self {
                address: SocketAddr::new(ip, 0),
                port: None,
            }),
            Err(_) => Err("write 0.0.0.0:4450, [::]:4450, or an address of this machine".into()),
        }
    }
}

/// Serves until stopped.
pub(crate) fn serve(
    args: &ServeArgs,
    run: impl FnOnce(Setup) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut setup, log) = match &args.config {
        Some(file) => {
            // Reading the files may wait for a disk, and an administrator may order a reload meanwhile.
            daemon::outlive_hangup()?;
            let config = config::load(file)?;
            let log = log::start(&config.log)?;
            (from_file(file, config)?, log)
        }
        None => {
            let (setup, text) = from_paths(args)?;
            let log = log::start(&setup.config.log)?;
            // `println!` is not used, because it would panic on a closed pipe, and the server
            // should run nevertheless.
            let _ = io::Write::write_all(&mut io::stdout(), text.as_bytes());
            (setup, log)
        }
    };
    state_dir::prepare(&setup.config.server.state_dir)?;
    // The daemon runs in the sandbox: no thread that serves or logs is older.
    setup.sandbox = sandbox::enter(&setup.config, setup.config_file.as_deref())?;
    let _flush = log.begin().map_err(|error| {
        format!(
            "the thread of the log: {error}\n  = let it have more threads: TasksMax= and \
                                  LimitNPROC= of the systemd unit, `ulimit -u` in a shell"
        )
    })?;
    run(setup)
}

fn from_file(file: &Path, config: Config) -> Result<Setup, Error> {
    state_dir::prepare(&config.server.state_dir)?;
    let users = users::load_or_make(&config.server.users_file)?;
    if users.users().next().is_none() {
        tracing::warn!(
            "nobody can log in yet: holdfast user add NAME --config {}",
            file.display()
        );
    }
    for line in acting::Server::here().lines(&config, &users) {
        tracing::info!("{line}");
    }
    for share in &config.shares {
        tracing::info!(
            share = share.name,
            path = %share.path.display(),
            durability = %share.durability.policy,
            "{}",
            config::policy::promise(&share.durability.policy, share.durability.flush_times)
        );
    }
    let named = |error| not_listening(error, &config.server.state_dir);
    let metrics = config.metrics.map(|address| {
        let bound = listener::bind(&Listener::at(address));
        bound.map_err(|error| format!("[metrics]: {}", named(error)))
    });
    let metrics = metrics.transpose()?;
    let sockets = config.listeners.iter().map(listener::bind);
    let sockets = sockets.collect::<Result<_, _>>().map_err(named)?;
    // A relative path would mean another file after a change of folder.
    let config_file = std::path::absolute(file)?;
    Ok(Setup {
        config,
        config_file: Some(config_file),
        users,
        sockets,
        metrics,
        sandbox: sandbox::SandboxReport::default(),
    })
}

fn from_paths(args: &ServeArgs) -> Result<(Setup, String), Error> {
    let shares = shares(&args.paths, args.share.as_deref())?;
    let folders = shares.iter().map(|(_, path)| path.as_path());
    let line = CommandLine {
        state_dir: places::apart_from(folders),
        shares,
        durability: args.durability.clone(),
        accept_loss: args.accept_loss,
        encryption: args.encrypt,
        read_only: args.read_only,
    };
    let mut config = config::from_command_line(&line).map_err(|problems| {
        let lines = problems.iter().map(|problem| match &problem.way_out {
            Some(way_out) => format!("error: {}\n  = {way_out}\n", problem.message),
            None => format!("error: {}\n", problem.message),
        });
        lines.collect::<String>()
    })?;
    let guest = config.server.guest_account.ids;
    for share in &mut config.shares {
        share.owner = Some(owner(&share.path, args.owner, guest)?);
    }
    let user = user_name(args.user.as_deref())?;
    let (password, made_up) = match &args.password_file {
        Some(file) => (password::read(file)?, false),
        None => (password::generate()?, true),
    };
    let state_of = |port: u16| line.state_dir.join(format!("serve-{port}"));
    let (socket, why_not_445) = bind(args.listen).map_err(|error| {
        let port = args.listen.and_then(|at| at.port).unwrap_or_default();
        not_listening(error, &state_of(port))
    })?;
    let address = socket.local_addr()?;
    config.listeners = vec![Listener::at(address)];
    config.server.state_dir = state_of(address.port());
    let warnings: Vec<String> = config
        .shares
        .iter()
        .filter_map(acting::unwritable)
        .collect();
    let text = banner::text(&banner::Facts {
        address,
        host: &places::host_name(),
        shares: &config.shares,
        user: &user,
        generated_password: made_up.then_some(password.as_str()),
        policy: config.durability.policy,
        why_not_445: why_not_445.as_deref(),
        encryption_required: config.server.encryption == Encryption::Required,
        loopback_by_default: args.listen.is_none(),
        warnings: &warnings,
    });
    let users = one_user(&user, &password)?;
    Ok((
        Setup {
            config,
            config_file: None,
            users,
            sockets: vec![socket],
            metrics: None,
            sandbox: sandbox::SandboxReport::default(),
        },
        text,
    ))
}

/// The local user as which a folder's files are read and made. The users of one run are not those
/// of the next, so everything belongs to one local user.
fn owner(folder: &Path, asked: Option<LocalIds>, guest: LocalIds) -> Result<LocalIds, Error> {
    let server = acting::Server::here();
    match asked {
        Some(asked) => return Ok(asked),
        None if !server.is_root() => return Ok(server.own),
        None => {}
    }
    let meta = std::fs::metadata(folder)
        .map_err(|error| format!("{} cannot be served: {error}", folder.display()))?;
    if meta.uid() == 0 {
        return Ok(guest);
    }
    Ok(LocalIds {
        uid: meta.uid(),
        gid: local_users::primary_group(meta.uid()).unwrap_or(meta.gid()),
    })
}

fn bind(listen: Option<ListenAt>) -> io::Result<(TcpListener, Option<String>)> {
    let at = listen.unwrap_or(ListenAt {
        address: (Ipv4Addr::LOCALHOST, 0).into(),
        port: None,
    });
    let try_bind = |port| {
        let mut address = at.address;
        address.set_port(port);
        listener::bind(&Listener::at(address))
    };
    match at.port {
        Some(port) => try_bind(port).map(|socket| (socket, None)),
        None => listener::bind_some_port(try_bind),
    }
}

/// The error of a listener. If another server has both the port and the state folder that this one would have, it is a
/// Holdfast with the same configuration.
fn not_listening(error: io::Error, state_dir: &Path) -> Error {
    if error.kind() != io::ErrorKind::AddrInUse || !state_dir::is_owned(state_dir) {
        return error.into();
    }
    let text = error.to_string();
    format!(
        "{}\n  = another Holdfast with this state folder runs already: `holdfast status --socket {}` asks it",
        text.lines().next().unwrap_or_default(),
        state_dir.join(places::CONTROL_SOCKET).display()
    )
    .into()
}

fn one_user(name: &str, password: &Password) -> Result<UserDb, Error> {
    let mut db = users::empty()?;
    db.add_user(name)
        .map_err(|error| users::refused(name, &error))?;
    users::set_password(&mut db, name, password)?;
    Ok(db)
}

fn user_name(given: Option<&str>) -> Result<String, Error> {
    if let Some(name) = given {
        return Ok(name.to_owned());
    }
    let mut trial = users::empty()?;
    let variables = ["LOGNAME", "USER"].into_iter();
    let mut names = variables.filter_map(|variable| env::var(variable).ok());
    let usable = names.find(|name| trial.add_user(name).is_ok());
    Ok(usable.unwrap_or_else(|| "holdfast".to_owned()))
}

/// Names and folders of the shares.
fn shares(paths: &[String], name: Option<&str>) -> Result<Vec<(String, PathBuf)>, Error> {
    match (name, paths) {
        (None, paths) => paths.iter().map(|path| share(path)).collect(),
        (Some(name), [path]) => Ok(vec![(name.to_owned(), PathBuf::from(path))]),
        (Some(_), _) => Err("--share names one folder; with more, write NAME=PATH for each".into()),
    }
}

fn share(text: &str) -> Result<(String, PathBuf), Error> {
    // If a folder of exactly this name exists, it is meant, with or without `=`.
    if !Path::new(text).exists()
        && let Some((name, path)) = text.split_once('=')
        && !name.contains('/')
    {
        return Ok((name.to_owned(), PathBuf::from(path)));
    }
    let path = PathBuf::from(text);
    let full = path.canonicalize().map_err(|error| {
        format!("{text} cannot be served: {error}\n  = give a folder that exists, as in: holdfast serve .")
    })?;
    let name = full
        .file_name()
        .map_or("root".into(), |name| name.to_string_lossy());
    Ok((name.into_owned(), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_named_by_their_folders_or_by_hand() {
        let top = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = top.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (plain, odd) = (folder("plain"), folder("a=b"));
        let names = |paths: &[String], name| {
            let found = shares(paths, name).unwrap();
            found.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[plain.clone(), odd], None), ["plain", "a=b"]);
        assert_eq!(
            names(&[format!("x={plain}"), format!("{plain}/.")], None),
            ["x", "plain"]
        );
        assert_eq!(names(std::slice::from_ref(&plain), Some("y")), ["y"]);
        assert_eq!(names(&["/".to_owned()], None), ["root"]);
        assert!(
            shares(&[plain.clone(), plain], Some("y"))
                .unwrap_err()
                .to_string()
                .contains("NAME=PATH")
        );
        assert!(
            shares(&["/no/such/folder".to_owned()], None)
                .unwrap_err()
                .to_string()
                .contains("holdfast serve .")
        );
    }

    #[test]
    fn a_folder_is_served_as_its_owner_and_never_as_root_unasked() {
        let ids = |uid, gid| LocalIds { uid, gid };
        let (folder, guest) = (tempfile::tempdir().unwrap(), ids(65_534, 65_533));
        let path = folder.path();
        assert_eq!(owner(path, Some(ids(0, 0)), guest).unwrap(), ids(0, 0));
        if !acting::Server::here().is_root() {
            let own = acting::Server::here().own;
            assert_eq!(owner(path, None, guest).unwrap(), own);
            return;
        }
        assert_eq!(owner(path, None, guest).unwrap(), guest);
        std::os::unix::fs::chown(path, Some(12_345), Some(12_400)).unwrap();
        assert_eq!(owner(path, None, guest).unwrap(), ids(12_345, 12_400));
    }

    #[test]
    fn a_metrics_page_that_cannot_listen_is_named_before_anything_is_served() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("h.toml");
        let text = format!(
            "[server]\nstate_dir = \"state\"\n[[listener]]\naddress = \"127.0.0.1:1\"\n\
             [[share]]\nname = \"s\"\npath = \"data\"\n[metrics]\nlisten = \"{address}\"\n"
        );
        std::fs::create_dir(folder.path().join("data")).unwrap();
        std::fs::write(&file, text).unwrap();
        let refused = || {
            let config = config::load(&file).unwrap_or_else(|error| panic!("{error}"));
            from_file(&file, config).unwrap_err().to_string()
        };
        let (error, named) = (
            refused(),
            format!("[metrics]: cannot listen on {address}: "),
        );
        assert!(error.starts_with(&named), "{error}");
        assert!(
            error.contains("\n  = another server listens there"),
            "{error}"
        );
        let _owned = state_dir::own(&folder.path().join("state")).unwrap();
        let error = refused();
        assert!(error.starts_with(&named), "{error}");
        assert!(
            error.contains("\n  = another Holdfast with this state folder"),
            "{error}"
        );
    }

    #[test]
    fn a_second_server_is_referred_to_the_first() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = Listener::at(taken.local_addr().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let refused = || {
            let error = listener::bind(&listener).unwrap_err();
            not_listening(error, folder.path()).to_string()
        };
        assert!(refused().contains("\n  = another server listens there"));
        let _owned = state_dir::own(folder.path()).unwrap();
        let said = refused();
        assert!(said.starts_with("cannot listen on 127.0.0.1:"), "{said}");
        let socket = folder.path().join("control.sock");
        assert!(said.contains(&format!("--socket {}", socket.display())));
        assert_eq!(said.lines().count(), 2, "{said}");
    }

    #[test]
    fn listen_takes_addresses_with_and_without_port() {
        let at = |text: &str| {
            text.parse::<ListenAt>()
                .map(|at| (at.address.ip().to_string(), at.port))
        };
        let scoped = "[fe80::1%2]:4450";
        let address = scoped.parse::<ListenAt>().map(|at| at.address.to_string());
        assert_eq!(address, Ok(scoped.to_owned()));
        assert_eq!(at("0.0.0.0:4450"), Ok(("0.0.0.0".into(), Some(4450))));
        assert_eq!(at("[::]:445"), Ok(("::".into(), Some(445))));
        assert_eq!(at("[::1]"), Ok(("::1".into(), None)));
        assert_eq!(at("::1"), Ok(("::1".into(), None)));
        assert!(
            at("everywhere")
                .unwrap_err()
                .to_string()
                .contains("0.0.0.0:4450")
        );
        assert!(at("127.0.0.1:99999").is_err());
    }

    #[test]
    fn one_user_with_a_password() {
        let password = Password::new("secret".to_owned());
        let db = one_user("alice", &password).unwrap();
        let hash = smb_auth::NtHash::from_password("secret");
        assert_eq!(db.user("alice").unwrap().nt_hash, Some(hash));
        assert!(
            one_user("a/b", &password)
                .unwrap_err()
                .to_string()
                .contains("a/b: not a usable name\n  = use 1 to 64 characters")
        );
        assert_eq!(user_name(Some("bob")).unwrap(), "bob");
    }
}

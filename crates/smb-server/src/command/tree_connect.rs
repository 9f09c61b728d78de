//! TREE_CONNECT gives a session access to a share ([MS-SMB2] 3.3.5.7).

use std::sync::Arc;

use durability::Policy;
use smb_auth::fold_name;
use smb_wire::{
    access_mask::AccessMask,
    msg::{
        Dialect, ShareCapabilities, ShareFlags, ShareType, TreeConnectRequest, TreeConnectResponse,
    },
    status::Status,
    utf16,
};
use vfs::Vfs;

use super::{Call, Handled, Reply, revoke};
use crate::{
    config::ShareConfig,
    failure::Failure,
    limits::{LISTING_TREES, TREE_MEMORY, TREES_UNCHARGED},
    link::misbehaved::Misbehaved,
    state::{Due, LineAbout, Session, Share, TreeConnect, line_due},
    token::Token,
};

/// Longest name of a server, in characters ([MS-SMB2] 2.2.9).
const SERVER_NAME_MAX: usize = 255;

/// Longest share name, in characters ([MS-SRVS] allows 80 for the name itself).
const SHARE_NAME_MAX: usize = 80;

pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = TreeConnectRequest::read(&call.message)?;
    let session = call.session()?;
    let rules = call.server().rules_replaced();
    let token = session.token();
    let dialect = call.connection.dialect();
    // [MS-SMB2] 3.3.5.7: on 3.1.1 the request must be protected, because only then is the preauthentication hash
    // verified.
    if dialect == Dialect::SMB_3_1_1
        && !call.signed
        && !call.encrypted
        && !token.guest
        && !token.anonymous
    {
        return Err(Failure::Disconnect(Misbehaved::UnsignedTreeConnect));
    }
    let name = share_name(request.path)?;
    let lists_only = session.lists_only(call.server());
    let (mut tree, share_type, capabilities) = if name.eq_ignore_ascii_case("IPC$") {
        (pipes(session), ShareType::PIPE, ShareCapabilities::empty())
    } else if lists_only {
        // The client must not learn which share names exist.
        return Err(Status::ACCESS_DENIED.into());
    } else {
        let shares = call.server().shares();
        // [MS-SMB2] 3.3.4.4: clients try again.
        let absent = match shares.is_late(&name) {
            true => Status::SHARE_UNAVAILABLE,
            false => Status::BAD_NETWORK_NAME,
        };
        let share = shares.find(&name).cloned().ok_or(absent)?;
        // [MS-SMB2] 3.3.5.7.
        let available = share.config.continuous_availability && dialect >= Dialect::SMB_3_0;
        let capabilities = ShareCapabilities::CONTINUOUS_AVAILABILITY.when(available);
        let tree = disk(call, session, &token, share)?;
        (tree, ShareType::DISK, capabilities)
    };
    let response = TreeConnectResponse {
        share_type,
        share_flags: tree.flags,
        capabilities,
        maximal_access: tree.maximal_access,
    };
    let most = match lists_only {
        true => LISTING_TREES,
        false => call.server().config().limits.trees_per_session,
    };
    let id = {
        let mut tables = session.tables();
        // Another channel ended it meanwhile; its tables have been emptied.
        session.check()?;
        Status::INSUFFICIENT_RESOURCES.when(tables.trees.len() >= most)?;
        let charged = tables.trees.len() >= TREES_UNCHARGED;
        tree._memory = charged.then(|| call.keep(TREE_MEMORY)).transpose()?;
        let id = tables.new_tree_id();
        tree.id = id;
        tables.trees.insert(id, Arc::new(tree));
        id
    };
    if call.server().rules_replaced() != rules {
        // If the rules were replaced meanwhile, the session may have been checked before this tree was in it.
        revoke::look_again(call.server(), session);
        Status::ACCESS_DENIED.when(!session.tables().trees.contains_key(&id))?;
    }
    call.chain.tree.set(Some(id));
    let mut reply = Reply::read_only(&response);
    reply.tree = Some(id);
    Ok(reply)
}

/// The share's name out of `\\server\share`.
fn share_name(path: &[u8]) -> Result<String, Failure> {
    let path = utf16::decode(path, "TREE_CONNECT path")?;
    let (server, name) = path
        .strip_prefix(r"\\")
        .and_then(|rest| rest.split_once('\\'))
        .ok_or(Status::INVALID_PARAMETER)?;
    // [MS-SMB2] 3.3.5.7: which server is named does not matter, but one must be.
    Status::INVALID_PARAMETER
        .when(server.is_empty() || server.chars().count() > SERVER_NAME_MAX)?;
    if name.is_empty() || name.chars().count() > SHARE_NAME_MAX || name.contains('\\') {
        return Err(Status::BAD_NETWORK_NAME.into());
    }
    Ok(name.to_owned())
}

fn pipes<V: Vfs>(session: &Session<V>) -> TreeConnect<V> {
    TreeConnect {
        id: Default::default(),
        acting: Default::default(),
        parked: Default::default(),
        _memory: None,
        share: None,
        maximal_access: AccessMask::FILE_ALL_ACCESS,
        flags: ShareFlags::NO_CACHING,
        encrypted: session.encrypt_data,
        limits_hosts: false,
    }
}

fn disk<V: Vfs>(
    call: &Call<V>,
    session: &Session<V>,
    token: &Token,
    share: Arc<Share<V>>,
) -> Result<TreeConnect<V>, Failure> {
    let config = &share.config;
    if !config.hosts.admits(call.connection.peer.ip()) || !admits(config, token) {
        log_refused(call, token, config);
        return Err(Status::ACCESS_DENIED.into());
    }
    // An anonymous session can encrypt as well, but guests are let into no share that requires it.
    if config.encryption_required && session.sealing.is_none() {
        // [MS-SMB2] 3.3.5.7: RejectUnencryptedAccess.
        return Err(Status::ACCESS_DENIED.into());
    }
    warn_of_loss(call, token, &share);
    let maximal_access = if config.read_only {
        AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_EXECUTE
    } else {
        AccessMask::FILE_ALL_ACCESS
    };
    let flags = ShareFlags::empty()
        .union(ShareFlags::ENCRYPT_DATA.when(config.encryption_required))
        .union(ShareFlags::ACCESS_BASED_DIRECTORY_ENUM.when(config.access_based_enumeration));
    Ok(TreeConnect {
        maximal_access,
        flags,
        ..TreeConnect::of(share)
    })
}

/// Logs that a user or an address was not let into a share. Any client can ask again and again.
fn log_refused<V: Vfs>(call: &Call<V>, token: &Token, config: &ShareConfig) {
    let more = |from, left_out| {
        tracing::info!(%from, left_out, "more tree connects refused");
    };
    let peer = call.connection.peer.ip();
    if let Some(left_out) = line_due(call.server(), LineAbout::TreeConnect, peer, more) {
        tracing::info!(
            share = config.name,
            user = token.user,
            peer = %call.connection.peer,
            left_out,
            "tree connect refused"
        );
    }
}

/// Logs a warning that a user connects to a share whose acknowledged data may be lost with its host.
fn warn_of_loss<V: Vfs>(call: &Call<V>, token: &Token, share: &Share<V>) {
    let lazy = Policy::TreatHostAsStableStorage;
    let by_rule = || share.gate.rules().iter().any(|rule| rule.policy == lazy);
    if share.gate.effective_policy() != lazy && !by_rule() {
        return;
    }
    let server = call.server();
    if let Due::Write(left_out) = server.loss_warnings.due(share.id, server.env.monotonic()) {
        tracing::warn!(
            share = share.config.name,
            user = token.user,
            peer = %call.connection.peer,
            left_out,
            "connected to a share that treats its host as stable storage, by its policy or a rule: \
             acknowledged flushes are NOT on stable storage"
        );
    }
}

pub(crate) fn admits(config: &ShareConfig, token: &Token) -> bool {
    if token.guest || token.anonymous {
        return config.guest;
    }
    let Some(users) = &config.users else {
        return true;
    };
    let is_named = |user: &String| fold_name(user) == fold_name(&token.user);
    let is_member = |rid: &u32| token.group_rids.contains(rid);
    users.iter().any(is_named) || config.group_rids.iter().any(is_member)
}

"""Remote administration: impacket, and rpcclient where it is there, list and end sessions and open files
([MS-SRVS] 3.1.4.1 to 3.1.4.6) as a member of the group of administrators, and are refused as anybody else."""
import shutil
import time

from impacket import smb3structs as smb
from impacket.dcerpc.v5 import srvs
from impacket.dcerpc.v5.dtypes import NULL
from impacket.dcerpc.v5.rpcrt import DCERPCException
from impacket.dcerpc.v5.transport import SMBTransport

from holdfast import PASSWORD, USER, Holdfast, run
from python_impacket import SHARE_ALL, refused
from report import expect

OTHER = "other"
ACCESS_DENIED = 5
FILE_CLOSED, USER_SESSION_DELETED = 0xC0000128, 0xC0000203


def check(report):
    with Holdfast(["data"], {"administrators": "admins"}, (USER, OTHER), groups={"admins": [USER]}) as server:
        report.check("administration by impacket", by_impacket, server)
        if shutil.which("rpcclient"):
            report.check("administration by rpcclient", by_rpcclient, server)


def srvsvc(server, user):
    dce = SMBTransport("127.0.0.1", server.port, r"\srvsvc", user, PASSWORD).get_dce_rpc()
    dce.connect()
    dce.bind(srvs.MSRPC_UUID_SRVS)
    return dce


def by_impacket(server):
    mine, theirs = srvsvc(server, USER), srvsvc(server, OTHER)
    others_are_refused(theirs)
    peer = theirs.get_rpc_transport().get_smb_connection()
    low, tree = peer.getSMBServer(), peer.connectTree("data")
    file = low.create(tree, "held", 0x001F01FF, SHARE_ALL, smb.FILE_NON_DIRECTORY_FILE, smb.FILE_OPEN_IF, 0)
    for level in (0, 1, 2, 10, 502):
        found = sessions(mine, level)
        clients = {text(one, f"sesi{level}_cname") for one in found}
        expect(clients == {"127.0.0.1"}, f"clients of level {level}: {clients}")
        users = {text(one, f"sesi{level}_username") for one in found} if level else {USER, OTHER}
        expect(users == {USER, OTHER}, f"users of level {level}: {users}")
    held = files(mine)[r"C:\data\held"]
    expect(text(held, "fi3_username") == OTHER and held["fi3_permissions"] == 7, "of the open: " + repr(held.fields))
    number = held["fi3_id"]
    answer = srvs.hNetrFileGetInfo(mine, number, 3)
    path = text(answer["InfoStruct"]["FileInfo3"], "fi3_path_name")
    expect(path == r"C:\data\held", f"NetrFileGetInfo: {path}")
    answer = srvs.hNetrConnectionEnum(mine, "data\0", 1)
    [made] = answer["InfoStruct"]["ConnectInfo"]["Level1"]["Buffer"]
    names = text(made, "coni1_username"), text(made, "coni1_netname"), made["coni1_num_opens"]
    expect(names == (OTHER, "127.0.0.1", 1), f"connections: {names}")
    srvs.hNetrFileClose(mine, number)
    refused(FILE_CLOSED, low.read, tree, file, 0, 1)
    end = time.monotonic() + 10
    while r"C:\data\held" in files(mine):
        expect(time.monotonic() < end, "the file is still open")
    srvs.hNetrSessionDel(mine, "\\\\127.0.0.1\0", OTHER + "\0")
    left = [text(one, "sesi10_username") for one in sessions(mine, 10)]
    expect(OTHER not in left, f"sessions left: {left}")
    refused(USER_SESSION_DELETED, low.read, tree, file, 0, 1)


def sessions(dce, level):
    answer = srvs.hNetrSessionEnum(dce, NULL, NULL, level)
    return answer["InfoStruct"]["SessionInfo"][f"Level{level}"]["Buffer"]


def files(dce):
    answer = srvs.hNetrFileEnum(dce, NULL, NULL, 3)
    return {text(one, "fi3_path_name"): one for one in answer["InfoStruct"]["FileInfo"]["Level3"]["Buffer"]}


def text(entry, member):
    return entry[member][:-1]


def others_are_refused(dce):
    for call in (
            lambda: srvs.hNetrSessionEnum(dce, NULL, NULL, 10),
            lambda: srvs.hNetrFileEnum(dce, NULL, NULL, 3),
            lambda: srvs.hNetrConnectionEnum(dce, "data\0", 1),
            lambda: srvs.hNetrFileClose(dce, 1),
            lambda: srvs.hNetrSessionDel(dce, NULL, USER + "\0")):
        try:
            call()
        except DCERPCException as error:
            expect(error.get_error_code() == ACCESS_DENIED, f"refused with {error}")
            continue
        raise AssertionError("somebody who is no administrator was answered")


def by_rpcclient(server):
    for call in ("netsessenum", "netfileenum"):
        said = rpcclient(server, USER, call, check=True)
        expect("WERR_" not in said and "NT_STATUS_" not in said, f"{call}: {said}")
        said = rpcclient(server, OTHER, call, check=False)
        expect("ACCESS_DENIED" in said, f"{call} of somebody else: {said}")


def rpcclient(server, user, call, check):
    return run(["rpcclient", "-p", str(server.port), "-U", f"{user}%{PASSWORD}", "127.0.0.1", "-c", call], check=check)

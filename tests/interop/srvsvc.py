"""NetrShareEnum over any transport that can write a pipe and read its answer, with the structures
of impacket ([MS-SRVS] 3.1.4.8, [MS-RPCE] 2.2.2)."""
import struct

from impacket.dcerpc.v5 import srvs
from impacket.dcerpc.v5.dtypes import NULL
from impacket.uuid import uuidtup_to_bin

NDR = uuidtup_to_bin(("8a885d04-1ceb-11c9-9fe8-08002b104860", "2.0"))


def pdu(kind, body, call):
    return struct.pack("<BBBBIHHI", 5, 0, kind, 3, 0x10, 16 + len(body), 0, call) + body


def shares_over(transceive):
    """Names of the shares; `transceive` sends one PDU and returns the answer."""
    bind = struct.pack("<HHIBxxxHBx", 4280, 4280, 0, 1, 0, 1) + srvs.MSRPC_UUID_SRVS + NDR
    answer = transceive(pdu(11, bind, 1))
    if answer[2] != 12:
        raise AssertionError(f"bind was answered with PDU type {answer[2]}")
    request = srvs.NetrShareEnum()
    request["ServerName"] = "\\\\127.0.0.1\0"
    request["PreferedMaximumLength"] = 0xFFFFFFFF
    request["ResumeHandle"] = NULL
    request["InfoStruct"]["ShareInfo"]["tag"] = 1
    request["InfoStruct"]["ShareInfo"]["Level1"]["Buffer"] = NULL
    request["InfoStruct"]["Level"] = 1
    stub = request.getData()
    answer = transceive(pdu(0, struct.pack("<IHH", len(stub), 0, 15) + stub, 2))
    if answer[2] != 2:
        raise AssertionError(f"NetrShareEnum was answered with PDU type {answer[2]}")
    response = srvs.NetrShareEnumResponse(answer[24:])
    return [share["shi1_netname"][:-1] for share in response["InfoStruct"]["ShareInfo"]["Level1"]["Buffer"]]

"""etcd's methods, by their paths, with the messages that go in and come out."""

from dataclasses import dataclass
from typing import Any

from sterna_etcd.proto import etcd_pb2 as pb


@dataclass(frozen=True)
class Method:
    """One call. `is_read`: asking twice does no harm."""

    path: str
    request: Any
    response: Any
    is_read: bool = False


RANGE = Method("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse, is_read=True)
PUT = Method("/etcdserverpb.KV/Put", pb.PutRequest, pb.PutResponse)
DELETE_RANGE = Method("/etcdserverpb.KV/DeleteRange", pb.DeleteRangeRequest, pb.DeleteRangeResponse)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
READ_TXN = Method("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse, is_read=True)
COMPACT = Method("/etcdserverpb.KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse, is_read=True)
# The client chooses the lease's number, so that a repeated grant finds its own lease and makes no second one; keeping
# alive and revoking are the same however often they are done.
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse, is_read=True)
LEASE_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse, is_read=True)
LEASE_KEEP_ALIVE = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse, is_read=True
)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse, is_read=True)
STATUS = Method("/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse, is_read=True)

"""Where the published data sets come from: one line per file, each pinned to a commit and a checksum.

Generated table; the sizes and checksums are those of the files at these commits.
"""

from __future__ import annotations

from calirare.datasets.download import RemoteFile

GITHUB = "https://raw.githubusercontent.com"
PLANETOID = f"{GITHUB}/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data"
GRAPH_DATA = f"{GITHUB}/EdisonLeeeee/GraphData/f8022c26b917346f2a461ffec0ec5ae24b36de68/datasets"
MUSAE = f"{GITHUB}/benedekrozemberczki/MUSAE/5f901232957b6c9985d750aac48cda39a4b24285/input"

# Size and sha256 of each Planetoid file.
_PLANETOID_FILES = {
    "Cora": {
        "x": (22119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
        "tx": (148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
        "allx": (257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
        "y": (4054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
        "ty": (28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
        "ally": (47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
        "graph": (59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
        "test.index": (5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
    },
    "CiteSeer": {
        "x": (31087, "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6"),
        "tx": (260321, "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21"),
        "allx": (595021, "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668"),
        "y": (3014, "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924"),
        "ty": (24135, "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce"),
        "ally": (55623, "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95"),
        "graph": (61987, "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7"),
        "test.index": (5000, "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4"),
    },
    "PubMed": {
        "x": (23172, "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"),
        "tx": (405505, "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
        "allx": (7578385, "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"),
        "y": (854, "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"),
        "ty": (12135, "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
        "ally": (224739, "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
        "graph": (471808, "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
        "test.index": (6000, "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"),
    },
}


# Size and sha256 of each MUSAE file, by its folder there.
_MUSAE_FILES = {
    "edges/facebook_edges.csv": (1882610, "7c50d8f02a75cc0829577814a1fc14535164daa38d79c3612340c9e9cdbd4022"),
    "features/facebook.json": (2088766, "ea870537646a93642a0008d38aa9bfeff02018070ba97b1f3f469d9622626436"),
    "target/facebook_target.csv": (1177912, "7bd96eafea3c2ca40f44bfa9e73642194696c21e38c7b29ed409c32ad14075cd"),
}


def _planetoid(folder: str) -> tuple[RemoteFile, ...]:
    """Returns the eight files of a Planetoid graph."""
    return tuple(
        RemoteFile(
            f"{PLANETOID}/ind.{folder.lower()}.{part}", f"planetoid/{folder}/raw/ind.{folder.lower()}.{part}", *it
        )
        for part, it in _PLANETOID_FILES[folder].items()
    )


SOURCES: dict[str, tuple[RemoteFile, ...]] = {
    "cora": _planetoid("Cora"),
    "citeseer": _planetoid("CiteSeer"),
    "pubmed": _planetoid("PubMed"),
    "dblp": (
        RemoteFile(
            f"{GRAPH_DATA}/dblp.npz",
            "graphdata/dblp.npz",
            727093,
            "e1c460c864735b88158e230e715715b08a8f7bb7c94f7f6c3b5efc412558877d",
        ),
    ),
    "facebook_bag": tuple(
        RemoteFile(f"{MUSAE}/{file}", f"facebook/raw-musae/{file.partition('/')[2]}", *it)
        for file, it in _MUSAE_FILES.items()
    ),
}

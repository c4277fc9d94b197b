"""The names that `multiverso` shows, its former names, and the options of tables in its help."""

import pydoc
import typing
import unittest
import warnings

import multiverso as mv
from multiverso._native import hints
from multiverso.tables import _options, _updaters

#: Names of Multiverso 2016 and of the tables of 0.2.0, which stay.
STAYING = {
    "ArrayTableHandler": mv.ArrayTable,
    "HashTableHandler": mv.HashTable,
    "MatrixTableHandler": mv.MatrixTable,
    "server_id": mv.api.server_id,
    "servers_num": mv.api.servers_num,
    "workers_num": mv.api.workers_num,
}

FORMER = {
    **{
        name: getattr(mv.errors, name)
        for name in mv.errors.__all__
        if name not in (*mv.__all__, "PublicationError")  # which came later
    },
    "Cut": mv.tables.Cut,
    "Membership": mv.api.Membership,
    "View": mv.tables.View,
    "latest": mv.checkpoint.latest,
    "leave": mv.api.leave,
    "lost_ranks": mv.api.lost_ranks,
    "membership": mv.api.membership,
    "num_servers": mv.api.num_servers,
    "on_membership": mv.api.on_membership,
}


class TestNames(unittest.TestCase):
    def test_dir_lists_what_users_type(self):
        self.assertEqual(dir(mv), sorted(mv.__all__))
        self.assertLess(len(mv.__all__), 40 + len(STAYING))
        for name in mv.__all__:
            self.assertTrue(hasattr(mv, name), name)
        self.assertEqual(hints.of_module("torch_ext", ()), "; import multiverso.torch_ext")

    def test_dir_of_a_table_lists_what_has_help(self):
        with mv.session() as session:
            tables = mv.ArrayTable(1), mv.MatrixTable(1, 1), mv.HashTable(1, 9)
        self.assertNotIn("handle", dir(session))
        for table in tables:  # A notebook completes the names of closed tables, too.
            names = {name for name in dir(table) if not name.startswith("_")}
            self.assertLessEqual({"add", "get", "name"}, names)
            for name in names:
                self.assertTrue(getattr(type(table), name).__doc__, name)

    def test_names_of_2016_stay_in_silence(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            star = {}
            exec("from multiverso import *", star)
            for name, expected in STAYING.items():
                self.assertIs(star[name], expected)

    def test_former_names_warn(self):
        for name, expected in FORMER.items():
            with self.subTest(name), self.assertWarnsRegex(DeprecationWarning, f"mv.{name} is"):
                self.assertIs(getattr(mv, name), expected)

    def test_functions_of_the_session_are_its_methods(self):
        with mv.session(on_peer_lost="continue") as session:
            self.assertEqual(session.lost_ranks(), mv.api.lost_ranks())
            self.assertEqual(session.num_servers, mv.api.num_servers())


class TestOptions(unittest.TestCase):
    def test_help_shows_all_options(self):
        for table in (mv.ArrayTable, mv.MatrixTable, mv.HashTable):
            shown = pydoc.plain(pydoc.render_doc(table))
            for name in (
                *typing.get_type_hints(_options.UpdaterOptions),
                "max_bytes : int",
                "wire : ",
            ):
                with self.subTest(name, table=table.__name__):
                    self.assertIn(name, shown)

    def test_types_name_the_options_and_the_updaters(self):
        options = {name for _, names in _updaters.UPDATERS.values() for name in names}
        self.assertEqual(set(typing.get_type_hints(_options.UpdaterOptions)), options)
        self.assertEqual(set(typing.get_args(_options.UpdaterName)), set(_updaters.UPDATERS))

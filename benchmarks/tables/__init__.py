"""Quality of models of tables, beside boosted trees and other networks. See __main__.py."""

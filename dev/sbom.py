#!/usr/bin/python3
"""Prints what a package of ours is made of and what it needs to run (CycloneDX 1.5, JSON).

    dev/sbom.py PACKAGE.deb >PACKAGE.cdx.json     where that package is installed
    dev/sbom.py --check PACKAGE.cdx.json          whether it holds together

What it needs comes from dpkg: the versions that are installed here, with all that they
depend on. The same package and the same Debian give the same output, bit by bit.
"""

import datetime
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def sha256(content):
    return [{'alg': 'SHA-256', 'content': hashlib.sha256(content).hexdigest()}]


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def installed():
    """Returns what is installed: package to fields, and virtual package to one that provides it."""
    fields = ['Package', 'Version', 'Architecture', 'Depends', 'Pre-Depends', 'Provides', 'source:Package', 'source:Version']
    lines = run('dpkg-query', '-W', '-f', '${db:Status-Status}\t' + '\t'.join('${%s}' % field for field in fields) + '\n')
    packages = {}
    provided = {}
    for line in sorted(lines.splitlines()):
        status, *values = line.split('\t')
        if status == 'installed':
            package = dict(zip(fields, values))
            packages[package['Package']] = package
            for name in names(package['Provides']):
                provided.setdefault(name[0], package['Package'])
    return packages, provided


def names(dependencies):
    """Returns the names in a field like Depends, each with its alternatives."""
    return [[re.match(r'[^\s:(]+', one.strip()).group() for one in each.split('|')] for each in dependencies.split(',') if each.strip()]


def dependencies(package, packages, provided):
    """Returns the names of the installed packages that a package depends on."""
    found = set()
    for alternatives in names(package['Depends']) + names(package['Pre-Depends']):
        found.update([packages.get(name, packages.get(provided.get(name)))['Package'] for name in alternatives
                      if name in packages or name in provided][:1])
    return sorted(found)


def closure(root, packages, provided):
    """Returns what depends on what, from one package on."""
    graph = {}
    todo = [root]
    while todo:
        name = todo.pop()
        if name not in graph:
            graph[name] = dependencies(packages[name], packages, provided)
            todo += graph[name]
    return graph


def reference(package):
    return 'pkg:deb/debian/%s@%s?arch=%s' % (package['Package'], package['Version'].replace(':', '%3A').replace('+', '%2B'), package['Architecture'])


def licenses(name):
    """Returns the licenses that the file of the package names, if a program can read it."""
    try:
        text = read('/usr/share/doc/%s/copyright' % name).decode()
    except OSError:
        return []
    if not text.startswith('Format:'):
        return []
    found = re.findall(r'^License:[ \t]*(\S.*?)\s*$', text, re.MULTILINE)
    return [{'license': {'id' if one == 'PostgreSQL' else 'name': one}} for one in sorted(set(found))]


def component(package):
    return {
        'type': 'library' if package['Package'].startswith('lib') else 'application',
        'bom-ref': reference(package),
        'name': package['Package'],
        'version': package['Version'],
        'purl': reference(package),
        'licenses': licenses(package['Package']),
        'properties': [{'name': 'debian:source', 'value': '%s %s' % (package['source:Package'], package['source:Version'])}],
    }


def files(name):
    """Returns the files of a package as components."""
    listed = [path for path in run('dpkg-query', '-L', name).splitlines() if not path.startswith('/usr/share/doc')]
    found = []
    for path in sorted(listed):
        try:
            found.append({'type': 'file', 'bom-ref': 'file:' + path, 'name': path, 'hashes': sha256(read(path))})
        except IsADirectoryError:
            pass
    return found


def sources(path):
    """Returns the archives of the source that lie beside a package as components."""
    return [{'type': 'file', 'bom-ref': 'source:' + os.path.basename(archive), 'name': os.path.basename(archive), 'hashes': sha256(read(archive))}
            for archive in sorted(glob.glob(os.path.join(os.path.dirname(path), 'outbox_*.tar.*')))]


def moment(name):
    """Returns when the newest change of a package was written down: its files have that time."""
    changelog = '/usr/share/doc/%s/changelog.Debian.gz' % name
    try:
        line = run('dpkg-parsechangelog', '-l', changelog, '-S', 'Timestamp')
    except (OSError, subprocess.CalledProcessError):
        line = run('stat', '-c', '%Y', '/usr/share/doc/%s/copyright' % name)
    return datetime.datetime.fromtimestamp(int(line), datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')


def describe(path):
    name = run('dpkg-deb', '-f', path, 'Package').strip()
    packages, provided = installed()
    if name not in packages:
        sys.exit('The package %s is not installed here: install it, then try again.' % name)
    graph = closure(name, packages, provided)
    ours = component(packages[name])
    ours['hashes'] = sha256(read(path))
    ours['components'] = files(name) + sources(path)
    bill = {
        'bomFormat': 'CycloneDX',
        'specVersion': '1.5',
        'version': 1,
        'metadata': {'timestamp': moment(name), 'component': ours},
        'components': [component(packages[each]) for each in sorted(graph) if each != name],
        'dependencies': [{'ref': reference(packages[each]), 'dependsOn': [reference(packages[other]) for other in graph[each]]}
                         for each in sorted(graph)],
    }
    text = json.dumps(bill, sort_keys=True)
    bill['serialNumber'] = 'urn:uuid:%s' % uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4)
    return bill


def check(bill):
    """Ends with a sentence if something is named that is not there, or twice."""
    every = [bill['metadata']['component']] + bill['metadata']['component']['components'] + bill['components']
    references = [each['bom-ref'] for each in every]
    named = [each['ref'] for each in bill['dependencies']]
    wanted = {other for each in bill['dependencies'] for other in each['dependsOn']}
    if len(set(references)) < len(references) or len(set(named)) < len(named):
        sys.exit('Something is in it twice.')
    if not wanted <= set(named) or not set(named) <= set(references):
        sys.exit('It depends on what is not in it: %s' % sorted(wanted.union(named).difference(references)))
    if not all(each.get('version') for each in bill['components']):
        sys.exit('Something has no version.')
    if not any(each['name'].endswith('/outbox.so') for each in every) or not any('hiredis' in each['name'] for each in every):
        sys.exit('The library, or hiredis, is not in it.')


def main():
    if sys.argv[1] == '--check':
        check(json.loads(read(sys.argv[2])))
    else:
        json.dump(describe(sys.argv[1]), sys.stdout, indent='\t', sort_keys=True)
        print()


main()

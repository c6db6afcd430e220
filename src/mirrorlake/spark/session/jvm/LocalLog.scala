package mirrorlake

import java.io.{File, FileNotFoundException, IOException}
import java.lang.{Boolean => JavaBoolean}
import java.net.URI
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{FileAlreadyExistsException, FileSystemException, Files, NoSuchFileException}
import java.nio.file.{Path => JavaPath, Paths, StandardOpenOption}
import java.nio.file.attribute.BasicFileAttributes
import java.util.{ArrayList, Arrays, Iterator => JavaIterator, UUID}

import io.delta.storage.HDFSLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataOutputStream, FileStatus, Path}
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager

/**
 * The log of tables on a local file system: a commit is there whole or not at all, after a power
 * failure too, and never takes the place of another.
 *
 * Delta's own store looks whether a version is there and then renames, so that of two processes
 * that commit one version at the same moment the second overwrites the first. A link is refused by
 * the file system itself. And it starts no process: Hadoop runs `chmod` and `readlink` for what it
 * creates and renames where it has no native library, a dozen of them for a commit, which take
 * longer than all else in it.
 *
 * Every commit lists what came since the last checkpoint. Hadoop asks for the facts of all files of
 * the log, and parses each of their names four times: a log of a month takes it seconds. Here only
 * the names of all are read.
 */
class LocalLogStore(hadoop: Configuration) extends HDFSLogStore(hadoop) {

  override def write(
      path: Path,
      actions: JavaIterator[String],
      overwrite: JavaBoolean,
      hadoop: Configuration): Unit =
    if (overwrite) super.write(path, actions, overwrite, hadoop) else link(path, actions)

  /** The files of the folder of `path` from its name on, by name. */
  override def listFrom(path: Path, hadoop: Configuration): JavaIterator[FileStatus] = {
    val folder = path.getParent
    val file = new File(folder.toUri.getPath)
    val names = file.list()
    if (names == null && file.exists()) throw new IOException(s"$folder cannot be listed")
    if (names == null) throw new FileNotFoundException(s"No such file or directory: $folder")
    val wanted = names.filter(_.compareTo(path.getName) >= 0)
    Arrays.sort(wanted.asInstanceOf[Array[Object]])
    val qualified = path.getFileSystem(hadoop).makeQualified(folder)
    val found = new ArrayList[FileStatus](wanted.length)
    wanted.foreach(name => facts(qualified, name).foreach(status => found.add(status)))
    found.iterator
  }

  /** What Delta asks of a file, unless it has gone meanwhile. */
  private def facts(folder: Path, name: String): Option[FileStatus] =
    try {
      val file = Paths.get(folder.toUri.getPath, name)
      val found = Files.readAttributes(file, classOf[BasicFileAttributes])
      val path =
        if (name.forall(plain)) new Path(URI.create(s"${folder.toUri}/$name"))
        else new Path(folder, new Path(null, null, name))  // a colon is no scheme
      val modified = found.lastModifiedTime.toMillis
      Some(new FileStatus(found.size, found.isDirectory, 1, 0, modified, path))
    } catch {
      case _: NoSuchFileException => None
    }

  /** Whether a letter stands in a URI as it is. */
  private def plain(letter: Char): Boolean =
    letter < 128 && (Character.isLetterOrDigit(letter) || "._-".indexOf(letter) >= 0)

  /** Write the commit aside and link it to its name. */
  private def link(path: Path, actions: JavaIterator[String]): Unit = {
    val lines = new ArrayList[String]
    actions.forEachRemaining(line => lines.add(line))
    val target = Paths.get(path.toUri.getPath)
    val staged = target.resolveSibling(s".${target.getFileName}.${UUID.randomUUID}.tmp")
    try {
      Files.write(staged, lines, UTF_8)
      flush(staged)
      Files.createLink(target, staged)
    } catch {
      case _: FileAlreadyExistsException => throw new FileAlreadyExistsException(path.toString)
      case error @ (_: UnsupportedOperationException | _: FileSystemException) =>
        // Any other way could take the place of the commit of another process.
        throw new IOException(s"$path cannot be linked to its name: ${error.getMessage}", error)
    } finally Files.deleteIfExists(staged)
  }

  /** A name that outlives a power failure has to lead to all of its commit. */
  private def flush(file: JavaPath): Unit = {
    val channel = FileChannel.open(file, StandardOpenOption.WRITE)
    try channel.force(true)
    finally channel.close()
  }
}

/** What Delta writes beside a commit, the checksum of a version, without a process either. */
class LocalFiles(path: Path, hadoop: Configuration)
    extends FileSystemBasedCheckpointFileManager(path, hadoop) {

  override def createTempFile(path: Path): FSDataOutputStream =
    if (fs.getScheme == "file") {
      new FSDataOutputStream(Files.newOutputStream(Paths.get(path.toUri.getPath)), null)
    } else super.createTempFile(path)
}

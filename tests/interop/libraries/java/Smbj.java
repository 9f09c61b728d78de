import com.hierynomus.msdtyp.AccessMask;
import com.hierynomus.msdtyp.FileTime;
import com.hierynomus.msdtyp.SecurityInformation;
import com.hierynomus.msfscc.FileAttributes;
import com.hierynomus.msfscc.fileinformation.FileBasicInformation;
import com.hierynomus.msfscc.fileinformation.FileIdBothDirectoryInformation;
import com.hierynomus.msfscc.fileinformation.FileStandardInformation;
import com.hierynomus.mssmb2.SMB2CreateDisposition;
import com.hierynomus.mssmb2.SMB2ShareAccess;
import com.hierynomus.smbj.SMBClient;
import com.hierynomus.smbj.SmbConfig;
import com.hierynomus.smbj.auth.AuthenticationContext;
import com.hierynomus.smbj.share.DiskShare;
import com.hierynomus.smbj.share.File;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.stream.Collectors;

/** smbj. */
class Smbj extends Driver {
    private DiskShare share;

    private File open(String name, SMB2CreateDisposition disposition) {
        return share.openFile(name, EnumSet.of(AccessMask.GENERIC_READ, AccessMask.GENERIC_WRITE, AccessMask.DELETE),
            EnumSet.of(FileAttributes.FILE_ATTRIBUTE_NORMAL), SMB2ShareAccess.ALL, disposition, null);
    }

    private String write(String name, String local, SMB2CreateDisposition disposition, boolean append) throws Exception {
        try (File file = open(name, disposition); OutputStream to = file.getOutputStream(append)) {
            Files.copy(Path.of(local), to);
        }
        return "";
    }

    private String get(String name, String local) throws Exception {
        try (File file = share.openFile(name, EnumSet.of(AccessMask.GENERIC_READ), null, SMB2ShareAccess.ALL,
                SMB2CreateDisposition.FILE_OPEN, null);
             InputStream from = file.getInputStream(); OutputStream to = Files.newOutputStream(Path.of(local))) {
            from.transferTo(to);
        }
        return "";
    }

    @Override
    String act(String[] part) throws Exception {
        switch (part[0]) {
            case "connect":
                // It encrypts all or nothing, and has to be told before it connects.
                share = (DiskShare) new SMBClient(SmbConfig.builder().withEncryptData(part[2].equals("secret")).build())
                    .connect("127.0.0.1", Integer.parseInt(part[1]))
                    .authenticate(new AuthenticationContext(part[3], part[4].toCharArray(), ""))
                    .connectShare(part[2]);
                return "";
            case "mkdir":
                share.mkdir(part[1]);
                return "";
            case "put":
                return write(part[1], part[2], SMB2CreateDisposition.FILE_OVERWRITE_IF, false);
            case "append":
                return write(part[1], part[2], SMB2CreateDisposition.FILE_OPEN, true);
            case "get":
                return get(part[1], part[2]);
            case "delete":
                share.rm(part[1]);
                return "";
            case "rmdir":
                share.rmdir(part[1], false);
                return "";
            case "rename":
                try (File file = open(part[1], SMB2CreateDisposition.FILE_OPEN)) {
                    file.rename(part[2], false);
                }
                return "";
            case "list":
                return share.list(part[1], part[2]).stream().map(FileIdBothDirectoryInformation::getFileName)
                    .filter(name -> !name.equals(".") && !name.equals("..")).collect(Collectors.joining("\t"));
            case "stat":
                return share.getFileInformation(part[1], FileStandardInformation.class).getEndOfFile() + "\t"
                    + share.getFileInformation(part[1], FileBasicInformation.class).getLastWriteTime().toEpochMillis() / 1000;
            case "settime": {
                FileBasicInformation had = share.getFileInformation(part[1], FileBasicInformation.class);
                FileTime when = FileTime.ofEpochMillis(Long.parseLong(part[2]) * 1000);
                share.setFileInformation(part[1], new FileBasicInformation(had.getCreationTime(),
                    had.getLastAccessTime(), when, had.getChangeTime(), had.getFileAttributes()));
                return "";
            }
            case "truncate":
                try (File file = open(part[1], SMB2CreateDisposition.FILE_OPEN)) {
                    file.setLength(Long.parseLong(part[2]));
                }
                return "";
            case "security":
                return share.getSecurityInfo(part[1], EnumSet.of(SecurityInformation.OWNER_SECURITY_INFORMATION,
                    SecurityInformation.DACL_SECURITY_INFORMATION)).getOwnerSid().toString();
            default:
                return "absent";
        }
    }
}
